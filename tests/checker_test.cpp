// The checker must notice what is wrong: a good call is spoiled in one place, and the check has to fail for
// that reason.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/check.h"
#include "ops/rope_case.h"

namespace brim {
namespace {

using harness::CheckResult;
using harness::Outcome;

constexpr entry::Path kReference{"reference", false};

// The spec's case, with `spoil` done to the args of the call under test. The oracle's are left alone: its are
// float64.
CheckResult check_spoiled(const ops::RopeSpec& spec, const std::function<void(brim_rope_args&)>& spoil) {
  ops::Case c = ops::make_rope_case(spec);
  c.bind = [bind = c.bind, spoil](std::span<const TensorView> views, const brim_run& run) {
    std::shared_ptr<void> args = bind(views, run);
    auto& rope = *static_cast<brim_rope_args*>(args.get());
    if (rope.q.dtype != BRIM_FLOAT64) spoil(rope);
    return args;
  };
  const harness::Devices devices = harness::make_devices();
  return harness::Checker(c, BRIM_OP_rope_forward, 1).run(devices, BRIM_BACKEND_REFERENCE, kReference);
}

void expect_failure(const CheckResult& result, const char* words) {
  EXPECT_EQ(result.outcome, Outcome::failed);
  EXPECT_NE(result.message.find(words), std::string::npos) << result.message;
}

ops::RopeSpec partial() {
  ops::RopeSpec spec;
  spec.r = 32;
  return spec;
}

TEST(Checker, PassesAGoodCall) {
  const CheckResult result = check_spoiled(partial(), [](brim_rope_args&) {});
  EXPECT_EQ(result.outcome, Outcome::ok) << result.message;
  EXPECT_GT(result.max_ulp, 0);
  EXPECT_LE(result.max_ulp, result.limit_ulp);
}

TEST(Checker, NoticesTheWrongSignOfSin) {
  expect_failure(check_spoiled(partial(), [](brim_rope_args& a) { a.inverse = 1; }), "ulp");
}

TEST(Checker, NoticesTheWrongPairing) {
  expect_failure(check_spoiled(partial(), [](brim_rope_args& a) { a.pairing = BRIM_PAIRING_INTERLEAVED; }),
                 "ulp");
}

TEST(Checker, NoticesAShiftedTable) {
  expect_failure(check_spoiled(partial(), [](brim_rope_args& a) { a.cos.strides[0] = 0; }), "ulp");
}

TEST(Checker, NoticesElementsThatWereNotWritten) {
  const auto fewer_tokens = [](brim_rope_args& a) {
    for (brim_tensor* t : {&a.q, &a.k, &a.q_out, &a.k_out}) t->shape[2] -= 1;
    a.cos.shape[0] = a.sin.shape[0] -= 1;
  };
  expect_failure(check_spoiled(partial(), fewer_tokens),
                 "512 of the 3584 elements of q_out were not written");
}

TEST(Checker, NoticesAPassThroughThatWasNotCopied) {
  const auto rotated_part_only = [](brim_rope_args& a) {
    for (brim_tensor* t : {&a.q, &a.k, &a.q_out, &a.k_out}) t->shape[3] = a.rotary_dim;
  };
  expect_failure(check_spoiled(partial(), rotated_part_only),
                 "1792 of the 3584 elements of q_out were not written");
}

// The elements themselves are right here and below: only the canaries can tell.
TEST(Checker, NoticesAWritePastAnOutput) {
  ops::RopeSpec spec;
  spec.k = BRIM_DTYPE_NONE;
  spec.hk = 0;
  spec.b = spec.s = spec.h = 1;
  const auto wider_head = [](brim_rope_args& a) { a.q.shape[3] = a.q_out.shape[3] = 65; };
  expect_failure(check_spoiled(spec, wider_head), "wrote outside the outputs: byte 256 of the 256 bytes");
}

TEST(Checker, NoticesAWriteIntoTheGapsOfAnOutput) {
  ops::RopeSpec spec;  // copies 64 elements that stand two apart
  spec.view = ops::RopeView::inner_strided;
  spec.pairing = BRIM_PAIRING_INTERLEAVED;
  spec.infer_rotary_dim = true;
  spec.r = 0;
  spec.k = BRIM_DTYPE_NONE;
  spec.hk = 0;
  spec.b = spec.s = spec.h = 1;
  EXPECT_EQ(check_spoiled(spec, [](brim_rope_args&) {}).outcome, Outcome::ok);
  const auto what_is_between_too = [](brim_rope_args& a) {
    for (brim_tensor* t : {&a.q, &a.q_out}) t->strides[3] = 1, t->shape[3] = 127;
  };
  expect_failure(check_spoiled(spec, what_is_between_too),
                 "wrote outside the outputs: byte 4 of the 508 bytes");
}

TEST(Checker, NoticesAChangedInput) {
  const CheckResult result = check_spoiled(partial(), [](brim_rope_args& a) { a.k_out = a.k; });
  expect_failure(result, "1792 of the 1792 elements of k_out were not written");
}

TEST(CaseMemory, NamesTheStorageThatChanged) {
  ops::RopeSpec spec;
  spec.view = ops::RopeView::packed;
  const ops::Case c = ops::make_rope_case(spec);
  const harness::CaseMemory memory(c);
  harness::Image before = memory.make_image(1), after = memory.make_image(1);
  EXPECT_EQ(memory.stray_writes(before, after), "");
  after.back().data()[300] ^= std::byte{1};
  EXPECT_NE(memory.stray_writes(before, after).find("byte 44 of the 896 bytes of the storage of sin"),
            std::string::npos)
      << memory.stray_writes(before, after);
  after = memory.make_image(1);
  static_cast<float*>(memory.views(after)[0].data)[0] = 7;  // an input, beside k and v in one storage
  EXPECT_NE(memory.stray_writes(before, after).find("byte 0 of the 28160 bytes of the storage of q, k"),
            std::string::npos)
      << memory.stray_writes(before, after);
  after = memory.make_image(1);
  static_cast<float*>(memory.views(after)[2].data)[0] = 7;  // q_out's own element
  EXPECT_EQ(memory.stray_writes(before, after), "");
}

TEST(Checker, NoticesARefusal) {
  expect_failure(check_spoiled(partial(), [](brim_rope_args& a) { a.layout = 7; }),
                 "the call was refused: rope_forward: layout");
}

TEST(Checker, NoticesBitsThatAreNotThePromisedOnes) {
  ops::Case c = ops::make_rope_case({});
  c.expect = [expect = c.expect](const ops::Values& inputs, const ops::Oracle& oracle) {
    std::vector<ops::Expected> expected = expect(inputs, oracle);
    for (ops::Expected& e : expected)
      if (!e.fused.empty()) e.fused.back() = std::nextafterf(static_cast<float>(e.fused.back()), 1e9f);
    return expected;
  };
  const harness::Devices devices = harness::make_devices();
  harness::Checker checker(c, BRIM_OP_rope_forward, 1);
  for (const entry::Path& path : entry::paths(BRIM_BACKEND_CPU, BRIM_OP_rope_forward)) {
    const CheckResult result = checker.run(devices, BRIM_BACKEND_CPU, path);
    if (path.fused)
      expect_failure(result, "these bits are promised");
    else
      EXPECT_EQ(result.outcome, Outcome::ok) << result.message;
  }
}

TEST(Checker, WantsBadDataRefused) {
  ops::RopeSpec spec;
  spec.tables = ops::RopeTables::pos_s;
  spec.data = ops::RopeData::bad_positions;
  EXPECT_EQ(check_spoiled(spec, [](brim_rope_args&) {}).outcome, Outcome::ok);
  const auto good_positions = [](brim_rope_args& a) {
    static int64_t zeros[7];
    a.positions.data = zeros;
  };
  expect_failure(check_spoiled(spec, good_positions), "bad data was answered with code 0");
}

TEST(Checker, SkipsWithAReason) {
  const ops::Case c = ops::make_rope_case({});
  const CheckResult result = harness::Checker(c, BRIM_OP_rope_forward, 1)
                                 .run(harness::make_devices(), BRIM_BACKEND_CPU, {"no-such-path", true});
  EXPECT_EQ(result.outcome, Outcome::skipped);
  EXPECT_NE(result.message.find("no-such-path"), std::string::npos) << result.message;
}

}  // namespace
}  // namespace brim
