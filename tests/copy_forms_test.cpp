// The closed list of plain copies on a GPU: what it promises for every device, size and pattern.
#include <gtest/gtest.h>

#include <set>

#include "cuda/copy.h"

namespace brim::cuda {
namespace {

using core::CopyPattern;
using Kind = CopyForm::Kind;

constexpr CopyPattern kPatterns[] = {CopyPattern::copy, CopyPattern::in_place,
                                     CopyPattern::two_reads_one_write, CopyPattern::read};

TEST(CopyForms, EveryFormCanBeLaunched) {
  for (const core::DeviceProps& device : core::kKnownDevices)
    for (const CopyPattern pattern : kPatterns)
      for (size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, size_t{100} << 20, size_t{1} << 40}) {
        std::set<std::string> names;
        for (const CopyForm& form : copy_forms(pattern, bytes, device)) {
          EXPECT_TRUE(names.insert(form.name).second) << form.name << " stands there twice";
          EXPECT_EQ(form.pattern, pattern);
          EXPECT_TRUE(form.kind == Kind::vectors || pattern == CopyPattern::copy) << form.name;
          if (form.kind == Kind::driver) continue;
          EXPECT_GT(form.blocks, 0u) << form.name;
          EXPECT_LE(form.blocks, 0x7fffffffu) << form.name;
          if (form.kind == Kind::ring) {
            EXPECT_GE(device.compute_capability, 90);
            EXPECT_LE(copy_ring_shared(kCopyRings[form.ring]), device.shared_per_block_optin);
          }
        }
        EXPECT_GE(names.size(), 3u) << device.name;
      }
}

TEST(CopyForms, RingsStandWhereTheirCtasFit) {
  const auto rings = [](const char* device) {
    int count = 0;
    for (const CopyForm& form :
         copy_forms(CopyPattern::copy, size_t{100} << 20, *core::known_device(device))) {
      if (form.kind != Kind::ring) continue;
      ++count;
      EXPECT_EQ(form.blocks % core::known_device(device)->sm_count, 0u);  // two or three CTAs an SM
    }
    return count;
  };
  EXPECT_EQ(rings("A100"), 0);
  EXPECT_EQ(rings("H200"), 3);
  EXPECT_EQ(rings("B200"), 3);
  EXPECT_EQ(rings("RTX 5090"), 1);  // 100 KiB an SM
}

TEST(CopyForms, ASmallCopyHasNoIdleCtas) {
  for (const CopyForm& form : copy_forms(CopyPattern::copy, 5 * 4096, *core::known_device("H200")))
    EXPECT_LE(form.blocks, 5u) << form.name;
}

TEST(CopyForms, TheFlushReadsFourTimesTheL2) {
  for (const core::DeviceProps& device : core::kKnownDevices) {
    EXPECT_GE(static_cast<int64_t>(flush_bytes(device)), 4 * device.l2_bytes);
    EXPECT_EQ(flush_form(device).pattern, CopyPattern::read);
    EXPECT_FALSE(flush_form(device).streaming);  // its lines are to stay
  }
}

TEST(CopyForms, PatternsHaveNames) {
  for (const CopyPattern pattern : kPatterns) {
    CopyPattern parsed;
    EXPECT_TRUE(core::parse_copy_pattern(core::kCopyPatternNames[static_cast<int>(pattern)], &parsed));
    EXPECT_EQ(parsed, pattern);
  }
  CopyPattern parsed;
  EXPECT_FALSE(core::parse_copy_pattern("write", &parsed));
}

}  // namespace
}  // namespace brim::cuda
