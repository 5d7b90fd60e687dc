// Calls that must not be refused, however odd they look. One row each.
#include "validation.h"

#include <utility>

#include "ops/rope.h"

namespace brim {
namespace {

struct Acceptance {
  const char* name;
  void (*change)(Call&);
};
void PrintTo(const Acceptance& a, std::ostream* out) { *out << a.name; }

// Buffers of the packed rows below: heads of q, k and v side by side, as one projection writes them.
constexpr int64_t kPacked = (kH + 2 * kHk) * kD;
float* packed() {
  alignas(64) static float buffer[kB * kS * kPacked];
  return buffer;
}
TensorView packed_heads(int64_t first, int64_t heads) {
  return view(packed() + first * kD, BRIM_FLOAT32, {kB, heads, kS, kD}, {kS * kPacked, kD, kPacked, 1});
}

const Acceptance kAccepted[] = {
    {"OutOfPlace", [](Call&) {}},
    {"InPlace",
     [](Call& c) {
       c.args.q_out = c.args.q;
       c.args.k_out = c.args.k;
     }},
    {"KAbsent", [](Call& c) { c.no_k(); }},
    {"MoreKHeadsThanQHeads",
     [](Call& c) {
       std::swap(c.args.q, c.args.k);
       std::swap(c.args.q_out, c.args.k_out);
     }},
    {"PackedSlicesInPlace",
     [](Call& c) {
       c.args.q = c.args.q_out = packed_heads(0, kH);
       c.args.k = c.args.k_out = packed_heads(kH, kHk);
     }},
    {"PackedSlicesIntoEachOthersNeighbours",
     [](Call& c) {
       c.args.k = packed_heads(kH, kHk);
       c.args.k_out = packed_heads(kH + kHk, kHk);
     }},
    {"ExpandedInputs",
     [](Call& c) {
       for (int64_t& s : c.args.q.strides) s = 0;
       c.args.k.strides[2] = 0;
     }},
    {"QAndKOneInput",
     [](Call& c) {
       c.args.q = c.args.k;
       c.args.q_out = view(c.q_out, BRIM_FLOAT32, {kB, kHk, kS, kD});
     }},
    {"CosIsSin", [](Call& c) { c.args.sin = c.args.cos; }},
    {"StrideOfASizeOneAxisMeansNothing",
     [](Call& c) { c.args.k.strides[1] = c.args.k_out.strides[1] = -77; }},
    {"InPlaceWithAnotherStrideOnASizeOneAxis",
     [](Call& c) {
       c.args.k_out = c.args.k;
       c.args.k_out.strides[1] = 3;
     }},
    {"StridesOfAnEmptyViewMeanNothing",
     [](Call& c) {
       for (brim_tensor* t : {&c.args.q, &c.args.k, &c.args.q_out, &c.args.k_out}) {
         t->shape[0] = 0;
         t->strides[1] = -5;
         t->data = nullptr;
       }
     }},
    {"StridesOfNoHeadsMeanNothing",
     [](Call& c) {
       for (brim_tensor* t : {&c.args.q, &c.args.q_out}) {
         t->shape[1] = 0;
         for (int64_t& s : t->strides) s = INT64_MAX;
       }
     }},
    {"ToHalfOfEmptyTensors",  // which all have the address null
     [](Call& c) {
       c.pairing(BRIM_PAIRING_TO_HALF);
       for (brim_tensor* t : {&c.args.q, &c.args.k, &c.args.q_out, &c.args.k_out})
         t->shape[0] = 0, t->data = nullptr;
     }},
    {"NoTokens",
     [](Call& c) {
       for (brim_tensor* t : {&c.args.q, &c.args.k, &c.args.q_out, &c.args.k_out})
         t->shape[2] = 0, t->data = nullptr;
       c.tables({0, kD});
       c.args.cos.data = c.args.sin.data = nullptr;
     }},
    {"NoKHeads",
     [](Call& c) {
       c.args.k.shape[1] = c.args.k_out.shape[1] = 0;
       c.args.k.data = c.args.k_out.data = nullptr;
     }},
    {"TableOfOneBatch",
     [](Call& c) {
       c.tables({1, kS, kD});
     }},
    {"TableOfEachBatch",
     [](Call& c) {
       c.tables({kB, kS, kD});
     }},
    {"TableOfHalfTheWidth",
     [](Call& c) {
       c.args.rotary_dim = kD;
       c.tables({kS, kD / 2});
     }},
    {"TableWithInnerStride",
     [](Call& c) {
       c.pairing(BRIM_PAIRING_INTERLEAVED);
       c.args.cos = view(c.cos, BRIM_FLOAT32, {kS, kD / 2}, {kD, 2});
       c.args.sin = view(c.sin, BRIM_FLOAT32, {kS, kD / 2}, {kD, 2});
     }},
    {"InterleavedInfersTheWidth",
     [](Call& c) {
       c.args.pairing = BRIM_PAIRING_INTERLEAVED;
       c.tables({kS, 3});
     }},
    {"ToHalfOutOfPlace", [](Call& c) { c.pairing(BRIM_PAIRING_TO_HALF); }},
    {"Partial",
     [](Call& c) {
       c.args.rotary_dim = 2;
       c.tables({kS, 1});
     }},
    {"PositionsOfASequence",
     [](Call& c) {
       c.position_ids({kS});
       c.tables({64, kD});
     }},
    {"PositionsInt32",
     [](Call& c) {
       c.position_ids({1, kS}, BRIM_INT32);
       c.tables({1, kD});
     }},
    {"PositionsOfEachBatch",
     [](Call& c) {
       c.position_ids({kB, kS});
     }},
    {"PositionsOfThd",
     [](Call& c) {
       c.thd();
       c.position_ids({kS});
     }},
    {"SectionsBlocked", [](Call& c) { c.sections(2, 1, 1); }},
    {"SectionsOneBatchFullWidth",
     [](Call& c) {
       c.sections(2, 1, 1);
       c.args.sections_interleaved = 1;
       c.tables({3, 1, kS, kD});
     }},
    {"Bshd",
     [](Call& c) {
       c.args.layout = BRIM_LAYOUT_BSHD;
       c.args.q = view(c.q, BRIM_FLOAT32, {kB, kS, kH, kD});
       c.args.q_out = view(c.q_out, BRIM_FLOAT32, {kB, kS, kH, kD});
       c.args.k = view(c.k, BRIM_FLOAT32, {kB, kS, kHk, kD});
       c.args.k_out = view(c.k_out, BRIM_FLOAT32, {kB, kS, kHk, kD});
     }},
    {"MixedTypes",
     [](Call& c) {
       c.args.q.dtype = c.args.q_out.dtype = BRIM_BFLOAT16;
       c.args.cos.dtype = c.args.sin.dtype = BRIM_BFLOAT16;
     }},
};

class RopeAcceptance : public testing::TestWithParam<Acceptance> {};
TEST_P(RopeAcceptance, Runs) {
  Call call;
  GetParam().change(call);
  for (const Status& status : {rope_forward(call.args), rope_backward(call.args)}) {
    EXPECT_EQ(status.code, BRIM_OK) << status.message;
    EXPECT_STREQ(status.message, "");
  }
}
INSTANTIATE_TEST_SUITE_P(Rows, RopeAcceptance, testing::ValuesIn(kAccepted),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(RopeProblem, AnEmptyViewDoesNotNarrowTheOthers) {
  Call call;
  for (brim_tensor* t : {&call.args.q, &call.args.q_out}) {
    t->shape[1] = 0;
    t->strides[0] = 7;
    t->data = call.q + 1;
  }
  EXPECT_EQ(ops::make_rope_problem(call.args).alignment, 16);
}

}  // namespace
}  // namespace brim
