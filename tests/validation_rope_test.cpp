// RoPE's own refusals: shapes, rotary and table width, rows, sections, positions, aliasing. One row each,
// code and exact text.
#include "validation.h"

namespace brim {
namespace {

const Refusal kRefusals[] = {
    // Shapes of q, k and the outputs.
    {"RankOfBhsd",
     [](Call& c) {
       c.args.q = view(c.q, BRIM_FLOAT32, {kS, kH, kD});
     },
     kArgument, "q has shape (5,3,8), layout bhsd expects rank 4"},
    {"RankOfBshd",
     [](Call& c) {
       c.args.layout = BRIM_LAYOUT_BSHD;
       c.args.q = view(c.q, BRIM_FLOAT32, {1, kB, kH, kS, kD});
     },
     kArgument, "q has shape (1,2,3,5,8), layout bshd expects rank 4"},
    {"RankOfThd", [](Call& c) { c.args.layout = BRIM_LAYOUT_THD; }, kArgument,
     "q has shape (2,3,5,8), layout thd expects rank 3"},
    {"KWithoutKOut", [](Call& c) { c.args.k_out = {}; }, kArgument, "k is given without k_out"},
    {"KOutWithoutK", [](Call& c) { c.args.k = {}; }, kArgument, "k_out is given without k"},
    {"KBatch",
     [](Call& c) {
       c.args.k = view(c.k, BRIM_FLOAT32, {1, kHk, kS, kD});
     },
     kArgument, "k has shape (1,1,5,8), q has (2,3,5,8); in layout bhsd only the heads may differ"},
    {"KSequence",
     [](Call& c) {
       c.args.k = view(c.k, BRIM_FLOAT32, {kB, kHk, kS - 1, kD});
     },
     kArgument, "k has shape (2,1,4,8), q has (2,3,5,8); in layout bhsd only the heads may differ"},
    {"KHeadDim",
     [](Call& c) {
       c.args.k = view(c.k, BRIM_FLOAT32, {kB, kHk, kS, 4});
     },
     kArgument, "k has shape (2,1,5,4), q has (2,3,5,8); in layout bhsd only the heads may differ"},
    {"KRank",
     [](Call& c) {
       c.args.k = view(c.k, BRIM_FLOAT32, {kB, kS, kD});
     },
     kArgument, "k has shape (2,5,8), q has (2,3,5,8); in layout bhsd only the heads may differ"},
    {"KTokensOfThd",
     [](Call& c) {
       c.thd();
       c.args.k = view(c.k, BRIM_FLOAT32, {kS + 1, kHk, kD});
     },
     kArgument, "k has shape (6,1,8), q has (5,3,8); in layout thd only the heads may differ"},
    {"QOutShape", [](Call& c) { c.args.q_out.shape[1] = 2; }, kArgument,
     "q_out has shape (2,2,5,8), expected that of q, (2,3,5,8)"},
    {"KOutShape", [](Call& c) { c.args.k_out.shape[1] = kH; }, kArgument,
     "k_out has shape (2,3,5,8), expected that of k, (2,1,5,8)"},
    {"SinShape",
     [](Call& c) {
       c.args.sin = view(c.sin, BRIM_FLOAT32, {kS, kD / 2});
     },
     kArgument, "sin has shape (5,4), expected that of cos, (5,8)"},
    {"SinRank",
     [](Call& c) {
       c.args.sin = view(c.sin, BRIM_FLOAT32, {1, kS, kD});
     },
     kArgument, "sin has shape (1,5,8), expected that of cos, (5,8)"},

    // Rotary width and table width.
    {"HalfCannotInfer",
     [](Call& c) {
       c.tables({kS, 4});
     },
     kArgument, "cos has 4 columns and head_dim is 8: rotary_dim could be 4 or 8, give it"},
    {"RotaryOdd", [](Call& c) { c.args.rotary_dim = 5; }, kArgument,
     "rotary_dim is 5, expected an even number from 0 to head_dim"},
    {"RotaryNegative", [](Call& c) { c.args.rotary_dim = -2; }, kArgument,
     "rotary_dim is -2, expected an even number from 0 to head_dim"},
    {"RotaryInferredOdd",
     [](Call& c) {
       c.no_k();
       c.args.q = view(c.q, BRIM_FLOAT32, {1, 1, kS, 7});
       c.args.q_out = view(c.q_out, BRIM_FLOAT32, {1, 1, kS, 7});
       c.tables({kS, 7});
     },
     kArgument, "rotary_dim is 7, expected an even number from 0 to head_dim"},
    {"RotaryBeyondHeadDim", [](Call& c) { c.args.rotary_dim = 12; }, kArgument,
     "rotary_dim is 12, more than head_dim, 8"},
    {"InterleavedInfersBeyondHeadDim",
     [](Call& c) {
       c.args.pairing = BRIM_PAIRING_INTERLEAVED;
       c.tables({kS, kD + 2});
     },
     kArgument, "rotary_dim is 20, more than head_dim, 8"},
    {"InterleavedFullWidthWithoutRotaryDim", [](Call& c) { c.args.pairing = BRIM_PAIRING_INTERLEAVED; },
     kArgument,
     "cos has 8 columns, interleaved pairing expects rotary_dim/2 = 4; two orders are in use: pass cos[..., "
     ":4] (and sin) "
     "where the halves repeat (GLM, DeepSeek), cos[..., ::2] where each column stands twice (Cohere)"},
    {"HalfWidth",
     [](Call& c) {
       c.args.rotary_dim = 4;
       c.tables({kS, 3});
     },
     kArgument, "cos has 3 columns, expected rotary_dim/2 or rotary_dim (2 or 4)"},
    {"HalfWidthOfTheHeadForAPartialRotation", [](Call& c) { c.args.rotary_dim = 4; }, kArgument,
     "cos has 8 columns, expected rotary_dim/2 or rotary_dim (2 or 4)"},
    {"InterleavedFullWidth",
     [](Call& c) {
       c.pairing(BRIM_PAIRING_INTERLEAVED);
       c.tables({kS, kD});
     },
     kArgument,
     "cos has 8 columns, interleaved pairing expects rotary_dim/2 = 4; two orders are in use: pass cos[..., "
     ":4] (and sin) "
     "where the halves repeat (GLM, DeepSeek), cos[..., ::2] where each column stands twice (Cohere)"},
    {"ToHalfFullWidth",
     [](Call& c) {
       c.pairing(BRIM_PAIRING_TO_HALF);
       c.args.rotary_dim = 4;
     },
     kArgument,
     "cos has 4 columns, interleaved pairing expects rotary_dim/2 = 2; two orders are in use: pass cos[..., "
     ":2] (and sin) "
     "where the halves repeat (GLM, DeepSeek), cos[..., ::2] where each column stands twice (Cohere)"},
    {"InterleavedWidth",
     [](Call& c) {
       c.pairing(BRIM_PAIRING_INTERLEAVED);
       c.tables({kS, 3});
     },
     kArgument, "cos has 3 columns, expected rotary_dim/2 = 4"},

    // Table rows, sections and positions.
    {"MoreRowsThanTokens",
     [](Call& c) {
       c.tables({kS + 1, kD});
     },
     kArgument,
     "cos has 6 rows, q has 5 tokens in a sequence; pass position_ids to pick rows of a longer table"},
    {"FewerRowsThanTokens",
     [](Call& c) {
       c.tables({kS - 1, kD});
     },
     kArgument, "cos has 4 rows, q has 5 tokens in a sequence"},
    {"TableRankOne", [](Call& c) { c.tables({kD}); }, kArgument,
     "cos has shape (8), expected (5,width), (1,5,width) or (2,5,width)"},
    {"TableBatch",
     [](Call& c) {
       c.tables({3, kS, kD});
     },
     kArgument, "cos has shape (3,5,8), expected (5,width), (1,5,width) or (2,5,width)"},
    {"TableSequence",
     [](Call& c) {
       c.tables({kB, kS - 1, kD});
     },
     kArgument, "cos has shape (2,4,8), expected (5,width), (1,5,width) or (2,5,width)"},
    {"TableOfMropeWithoutSections",
     [](Call& c) {
       c.tables({3, 1, kS, kD});
     },
     kArgument, "cos has shape (3,1,5,8), expected (5,width), (1,5,width) or (2,5,width)"},
    {"TableBatchUnderThd",
     [](Call& c) {
       c.thd();
       c.tables({kB, kS, kD});
     },
     kArgument, "cos has shape (2,5,8), expected (5,width) or (1,5,width)"},
    {"SectionsNegative", [](Call& c) { c.sections(-1, 3, 2); }, kArgument,
     "sections has the negative entry -1"},
    {"SectionsSum", [](Call& c) { c.sections(1, 1, 1); }, kArgument,
     "sections (1,1,1) sum to 3, expected rotary_dim/2 = 4"},
    {"SectionsWithPositions",
     [](Call& c) {
       c.sections(2, 1, 1);
       c.position_ids({kS});
     },
     kArgument, "position_ids and sections cannot be given together"},
    {"SectionsRank",
     [](Call& c) {
       c.sections(2, 1, 1);
       c.tables({3, kS, kD / 2});
     },
     kArgument, "cos has shape (3,5,4), with sections expected (3,2,5,width) or (3,1,5,width)"},
    {"SectionsAxes",
     [](Call& c) {
       c.sections(2, 1, 1);
       c.tables({2, kB, kS, kD / 2});
     },
     kArgument, "cos has shape (2,2,5,4), with sections expected (3,2,5,width) or (3,1,5,width)"},
    {"SectionsBatch",
     [](Call& c) {
       c.sections(2, 1, 1);
       c.tables({3, 3, kS, kD / 2});
     },
     kArgument, "cos has shape (3,3,5,4), with sections expected (3,2,5,width) or (3,1,5,width)"},
    {"SectionsSequence",
     [](Call& c) {
       c.sections(2, 1, 1);
       c.tables({3, kB, kS + 1, kD / 2});
     },
     kArgument, "cos has shape (3,2,6,4), with sections expected (3,2,5,width) or (3,1,5,width)"},
    {"PositionsNeedATable",
     [](Call& c) {
       c.position_ids({kS});
       c.tables({kB, kS, kD});
     },
     kArgument, "cos has shape (2,5,8), with position_ids expected a table (rows,width)"},
    {"PositionsLength", [](Call& c) { c.position_ids({kS + 1}); }, kArgument,
     "position_ids has shape (6), expected (5), (1,5) or (2,5)"},
    {"PositionsBatch",
     [](Call& c) {
       c.position_ids({3, kS});
     },
     kArgument, "position_ids has shape (3,5), expected (5), (1,5) or (2,5)"},
    {"PositionsFlat", [](Call& c) { c.position_ids({kB * kS}); }, kArgument,
     "position_ids has shape (10), expected (5), (1,5) or (2,5)"},
    {"PositionsOfThreeAxes",  // FIELD-CASES 66
     [](Call& c) {
       c.thd();
       c.position_ids({3, kS});
     },
     kArgument, "position_ids has shape (3,5), expected (5) or (1,5)"},

    // Aliasing.
    {"QOutExpanded", [](Call& c) { c.args.q_out.strides[1] = 0; }, kArgument,
     "the output q_out of shape (2,3,5,8) and strides (120,0,8,1) overlaps itself"},
    {"KOutRowsOverlap", [](Call& c) { c.args.k_out.strides[2] = 7; }, kArgument,
     "the output k_out of shape (2,1,5,8) and strides (40,40,7,1) overlaps itself"},
    {"QOutShiftedOverQ",
     [](Call& c) {
       c.no_k();
       c.args.q = view(c.q, BRIM_FLOAT32, {1, 1, kS, kD});
       c.args.q_out = view(c.q + 1, BRIM_FLOAT32, {1, 1, kS, kD});
     },
     kArgument, "the output q_out overlaps q"},
    {"QOutIsQWithOtherStrides",
     [](Call& c) {
       c.no_k();
       c.args.q = view(c.q, BRIM_FLOAT32, {1, kS, kS, kD}, {0, kD, kS * kD, 1});
       c.args.q_out = view(c.q, BRIM_FLOAT32, {1, kS, kS, kD});
     },
     kArgument, "the output q_out overlaps q"},
    {"QOutOverCos", [](Call& c) { c.args.cos.data = c.q_out; }, kArgument, "the output q_out overlaps cos"},
    {"QOutOverSin", [](Call& c) { c.args.sin.data = c.q_out + 30; }, kArgument,
     "the output q_out overlaps sin"},
    {"QOutOverPositions",
     [](Call& c) {
       c.position_ids({kS});
       c.args.positions.data = c.q_out;
     },
     kArgument, "the output q_out overlaps position_ids"},
    {"KOutOverK",
     [](Call& c) {
       c.args.k.data = c.k_out + kD;
       c.args.k.strides[0] = 8;
     },
     kArgument, "the output k_out overlaps k"},
    {"KOutOverQ", [](Call& c) { c.args.k_out.data = c.q; }, kArgument, "the output k_out overlaps q"},
    {"QOutOverK", [](Call& c) { c.args.k.data = c.q_out; }, kArgument, "the output q_out overlaps k"},
    {"OutputsOverlap", [](Call& c) { c.args.k_out.data = c.q_out + 8; }, kArgument,
     "the output q_out overlaps k_out"},
    {"QAndKInPlaceInOneBuffer", [](Call& c) { c.args.q = c.args.q_out = c.args.k = c.args.k_out; }, kArgument,
     "the output k_out overlaps q"},
    {"KOutOverCos", [](Call& c) { c.args.cos.data = c.k_out; }, kArgument, "the output k_out overlaps cos"},
    {"TooTangledToTellApart",  // odd and even elements, under strides that do not nest: the search gives up
     [](Call& c) {
       c.no_k();
       c.args.q = view(c.q + 1, BRIM_FLOAT32, {9, 9, 5, 8}, {34, 38, 46, 58});
       c.args.q_out = view(c.q, BRIM_FLOAT32, {9, 9, 5, 8}, {720, 80, 16, 2});
     },
     kArgument, "the output q_out could not be shown to be apart from q"},
    {"ToHalfInPlaceQ",
     [](Call& c) {
       c.pairing(BRIM_PAIRING_TO_HALF);
       c.args.q_out = c.args.q;
     },
     kArgument, "pairing to_half cannot run in place: q_out is q"},
    {"ToHalfInPlaceK",
     [](Call& c) {
       c.pairing(BRIM_PAIRING_TO_HALF);
       c.args.k_out = c.args.k;
     },
     kArgument, "pairing to_half cannot run in place: k_out is k"},
};

class RopeRefusal : public testing::TestWithParam<Refusal> {};
TEST_P(RopeRefusal, NamesOpArgumentExpectedAndFound) { expect_refusal(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Rows, RopeRefusal, testing::ValuesIn(kRefusals),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Positions, OutsideTheTableIsNamed) {  // FIELD-CASES 62
  struct Row {
    int64_t position;
    const char* message;
  };
  for (const Row& row : {Row{16, "rope: position_ids[7] is 16, table has 16 rows"},
                         Row{-1, "rope: position_ids[7] is -1, table has 16 rows"}}) {
    Call call;
    call.tables({16, kD});
    call.position_ids({kB, kS});
    call.positions[7] = row.position;
    call.positions[9] = 99;  // the first one is named
    const Status status = rope_forward(call.args);
    EXPECT_EQ(status.code, BRIM_OUT_OF_RANGE);
    EXPECT_STREQ(status.message, row.message);
    for (float x : call.q_out) EXPECT_EQ(x, 0);
    call.positions[7] = 15;
    call.positions[9] = 0;
    EXPECT_EQ(rope_forward(call.args).code, BRIM_OK);
  }
}

}  // namespace
}  // namespace brim
