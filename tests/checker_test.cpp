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

TEST(Checker, NoticesWritesPastAnOutput) {
  ops::RopeSpec spec;
  const auto one_more_token =
      [](brim_rope_args& a) {  // q's last token is written once more, behind the last one of k_out
        a.k_out.data = static_cast<float*>(a.k_out.data) + 1;
      };
  EXPECT_EQ(check_spoiled(spec, one_more_token).outcome, Outcome::failed);
  // The elements themselves are right: only the canary can tell.
  const auto wider_heads = [](brim_rope_args& a) {
    a.q.shape[3] += 1;
    a.q_out.shape[3] += 1;
    a.k = a.k_out = {};
    a.rotary_dim = 64;
  };
  spec.k = BRIM_DTYPE_NONE;
  spec.hk = 0;
  spec.b = spec.s = spec.h = 1;
  expect_failure(check_spoiled(spec, wider_heads), "wrote outside the outputs: byte 256 of the 256 bytes");
}

TEST(Checker, NoticesWritesIntoTheGapsOfAnOutput) {
  ops::RopeSpec spec;
  spec.view = ops::RopeView::inner_strided;
  spec.b = spec.s = spec.h = spec.hk = 1;
  spec.r = 2;
  const auto between =
      [](brim_rope_args& a) {  // 126 neighbours instead of 64 elements two apart; all that count are right
        for (brim_tensor* t : {&a.q, &a.k, &a.q_out, &a.k_out}) t->strides[3] = 1, t->shape[3] = 127;
        a.cos.shape[1] = a.sin.shape[1] = 0;
        a.cos.strides[0] = a.sin.strides[0] = 0;
        a.rotary_dim = 0;
        a.pairing = BRIM_PAIRING_INTERLEAVED;
      };
  EXPECT_EQ(check_spoiled(spec, between).outcome, Outcome::failed);
}

TEST(Checker, NoticesAChangedInput) {
  expect_failure(check_spoiled(partial(), [](brim_rope_args& a) { a.q_out = a.q; }), "");
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
  for (const entry::Path& path : entry::paths(BRIM_BACKEND_CPU)) {
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
