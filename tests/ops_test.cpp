// Every case of every op on every backend and path that this machine has: what `brim check` runs, one test a
// case.
#include <gtest/gtest.h>

#include <set>

#include "entry/entry.h"
#include "harness/check.h"

namespace brim {
namespace {

struct OpCase {
  brim_op op;
  ops::Case c;

  friend void PrintTo(const OpCase& x, std::ostream* out) { *out << x.c.name; }
};

std::vector<OpCase> every_case() {
  std::vector<OpCase> cases;
  for (brim_op op = 0; op < BRIM_OP_COUNT; ++op)
    for (ops::Case& c : ops::case_list(op).check()) cases.push_back({op, std::move(c)});
  return cases;
}

const harness::Devices& devices() {
  static const harness::Devices devices = harness::make_devices();
  return devices;
}

class Ops : public testing::TestWithParam<OpCase> {};

TEST_P(Ops, MatchesTheReference) {
  const OpCase& x = GetParam();
  harness::Checker checker(x.c, x.op, 1);
  for (brim_backend backend : {BRIM_BACKEND_REFERENCE, BRIM_BACKEND_CPU, BRIM_BACKEND_CUDA})
    for (const entry::Path& path : entry::paths(backend, x.op)) {
      const harness::CheckResult result = checker.run(devices(), backend, path);
      EXPECT_NE(result.outcome, harness::Outcome::failed) << path.name << ": " << result.message;
      if (backend == BRIM_BACKEND_REFERENCE) {
        EXPECT_EQ(result.outcome, harness::Outcome::ok) << result.message;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, Ops, testing::ValuesIn(every_case()),
                         [](const testing::TestParamInfo<OpCase>& test) {
                           return std::string(entry::op_name(test.param.op)) + "_" + test.param.c.name;
                         });

TEST(OpLists, NamesAreUniqueAndPlain) {
  for (brim_op op = 0; op < BRIM_OP_COUNT; ++op) {
    std::set<std::string> names;
    for (const ops::Case& c : ops::case_list(op).check()) {
      EXPECT_TRUE(names.insert(c.name).second) << c.name;
      EXPECT_EQ(c.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos)
          << c.name;
    }
    EXPECT_FALSE(names.empty()) << entry::op_name(op);
  }
}

// Without a path of its own choice a call must take one of those that are checked.
TEST(OpLists, TheDefaultPathIsAmongThoseChecked) {
  for (brim_op op = 0; op < BRIM_OP_COUNT; ++op) {
    const ops::Case c = ops::case_list(op).check().front();
    const harness::CaseMemory memory(c);
    harness::Image image = memory.make_image(1);
    const auto args = c.bind(memory.views(image), brim_run{});
    char plan[256];
    const Status status = brim_describe_plan(op, args.get(), plan, sizeof plan);
    ASSERT_TRUE(ok(status)) << status.message;
    const std::string text = plan;
    bool known = false;
    for (const entry::Path& path : entry::paths(BRIM_BACKEND_CPU, op))
      known |= text.substr(0, text.find(' ')) == path.name;
    EXPECT_TRUE(known) << plan;
  }
}

TEST(OpLists, BenchCasesAreSampledAndToldApart) {
  for (brim_op op = 0; op < BRIM_OP_COUNT; ++op)
    for (brim_dtype dtype : {BRIM_BFLOAT16, BRIM_FLOAT32})
      for (bool large : {false, true}) {
        ops::BenchRequest request;
        request.dtype = dtype;
        request.large = large;
        std::set<std::string> names;
        for (const ops::Case& c : ops::case_list(op).bench(request)) {
          EXPECT_TRUE(names.insert(c.name).second) << c.name;
          EXPECT_FALSE(c.layout.empty()) << c.name;
          EXPECT_FALSE(c.samples.empty()) << c.name;
          EXPECT_GT(c.bytes_read, 0) << c.name;
          EXPECT_GT(c.bytes_written, 0) << c.name;
        }
        EXPECT_FALSE(names.empty());
      }
}

TEST(OpLists, LargeCasesPassTwoToTheThirtyOne) {
  for (brim_op op = 0; op < BRIM_OP_COUNT; ++op)
    for (const ops::Case& c : ops::case_list(op).large()) {
      int64_t most = 0;
      for (const ops::CaseTensor& t : c.tensors) {
        int64_t elements = 1;
        for (int64_t n : t.shape) elements *= n;
        most = std::max(most, elements);
      }
      EXPECT_GT(most, int64_t{1} << 31) << c.name;
      EXPECT_FALSE(c.samples.empty()) << c.name;
    }
}

}  // namespace
}  // namespace brim
