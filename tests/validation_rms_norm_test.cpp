// Refusals of the norms. One row each, with the entries that give it, code and exact text.
#include "validation_rms_norm.h"

#include <cmath>

namespace brim {
namespace {

constexpr brim_code kArgument = BRIM_INVALID_ARGUMENT, kDtype = BRIM_INVALID_DTYPE,
                    kDevice = BRIM_DEVICE_ERROR;

enum : unsigned { kForward = 1, kBackward = 2, kAddForward = 4, kAddBackward = 8, kAll = 15, kOfX = 7 };

struct NormRefusal {
  const char* name;
  unsigned entries;
  void (*spoil)(NormCall&);
  brim_code code;
  const char* message;  // without the leading "<entry>: "
};
void PrintTo(const NormRefusal& r, std::ostream* out) { *out << r.name; }

#define SPOIL(...) [](NormCall& c) { __VA_ARGS__; }
#define NOT_ITS_TENSOR " is given, and this entry neither reads nor writes it"
#define NEEDED " has no element type: it is absent, but needed"

const NormRefusal kRefusals[] = {
    // Options.
    {"BackendUnknown", kAll, SPOIL(c.args.run.backend = 4), kArgument,
     "backend is 4, expected 0 (auto) to 3"},
    {"CastingTooLarge", kAll, SPOIL(c.args.casting = 3), kArgument, "casting is 3, expected 0 to 2"},
    {"CastingNegative", kAll, SPOIL(c.args.casting = -1), kArgument, "casting is -1, expected 0 to 2"},
    {"EpsNegative", kAll, SPOIL(c.args.eps = -1e-6), kArgument, "eps is -1e-06, expected a number from 0 up"},
    {"EpsInfinite", kAll, SPOIL(c.args.eps = INFINITY), kArgument, "eps is inf, expected a number from 0 up"},
    {"EpsNan", kAll, SPOIL(c.args.eps = std::abs(std::nan(""))), kArgument,
     "eps is nan, expected a number from 0 up"},
    {"OffsetInfinite", kAll, SPOIL(c.args.offset = -INFINITY), kArgument,
     "offset is -inf, expected a finite number"},

    // What is there.
    {"XAbsent", kOfX, SPOIL(c.args.x = {}), kDtype, "x" NEEDED},
    {"YAbsent", kForward | kAddForward, SPOIL(c.args.y = {}), kDtype, "y" NEEDED},
    {"ResidualAbsent", kAddForward, SPOIL(c.args.residual = {}), kDtype, "residual" NEEDED},
    {"SumAbsent", kAddForward | kAddBackward, SPOIL(c.args.sum = {}), kDtype, "sum" NEEDED},
    {"RstdAbsent", kBackward, SPOIL(c.args.rstd = {}), kDtype, "rstd" NEEDED},
    {"RstdAbsentBesideDy", kAddBackward, SPOIL(c.args.rstd = {}), kArgument, "dy is given without rstd"},
    {"DyAbsent", kBackward, SPOIL(c.args.dy = {}), kDtype, "dy" NEEDED},
    {"DyAndDsumAbsent", kAddBackward, SPOIL(c.args.dy = c.args.dsum = {}), kArgument,
     "dy and dsum are both absent, expected one at least"},
    {"NothingWanted", kBackward, SPOIL(c.args.dx = c.args.dweight = {}), kArgument,
     "no gradient is wanted: dx and dweight are absent"},
    {"NothingWantedOfTheAdd", kAddBackward, SPOIL(c.args.dx = c.args.dresidual = c.args.dweight = {}),
     kArgument, "no gradient is wanted: dx, dresidual and dweight are absent"},
    {"DweightWithoutWeight", kBackward | kAddBackward, SPOIL(c.args.weight = {}), kArgument,
     "dweight is given without weight"},
    {"XOfAnAddBackward", kAddBackward, SPOIL(c.args.x = c.args.sum), kArgument, "x" NOT_ITS_TENSOR},
    {"ResidualOfABackward", kAddBackward, SPOIL(c.args.residual = c.args.sum), kArgument,
     "residual" NOT_ITS_TENSOR},
    {"ResidualOfANorm", kForward | kBackward, SPOIL(c.args.residual = c.args.x), kArgument,
     "residual" NOT_ITS_TENSOR},
    {"SumOfANorm", kForward | kBackward, SPOIL(c.args.sum = c.args.x), kArgument, "sum" NOT_ITS_TENSOR},
    {"YOfABackward", kBackward | kAddBackward, SPOIL(c.args.y = c.args.dx), kArgument, "y" NOT_ITS_TENSOR},
    {"DyOfAForward", kForward | kAddForward, SPOIL(c.args.dy = c.args.y), kArgument, "dy" NOT_ITS_TENSOR},
    {"DsumOfANorm", kForward | kBackward | kAddForward, SPOIL(c.args.dsum = c.args.x), kArgument,
     "dsum" NOT_ITS_TENSOR},
    {"DxOfAForward", kForward | kAddForward, SPOIL(c.args.dx = c.args.y), kArgument, "dx" NOT_ITS_TENSOR},
    {"DresidualOfANorm", kForward | kBackward | kAddForward, SPOIL(c.args.dresidual = c.args.x), kArgument,
     "dresidual" NOT_ITS_TENSOR},
    {"DweightOfAForward", kForward | kAddForward, SPOIL(c.args.dweight = c.args.weight), kArgument,
     "dweight" NOT_ITS_TENSOR},

    // Views.
    {"RankZero", kOfX, SPOIL(c.args.x.rank = 0), kArgument, "x has rank 0, expected 1 to 5"},
    {"RankSix", kAddBackward, SPOIL(c.args.sum.rank = 6), kArgument, "sum has rank 6, expected 1 to 5"},
    {"NegativeStride", kOfX, SPOIL(c.args.x.strides[1] = -8), kArgument,
     "x has the negative stride -8 on axis 1, which is not served"},
    {"NullData", kOfX, SPOIL(c.args.x.data = nullptr), kArgument, "x has elements but its data is null"},
    {"NullWeight", kAll, SPOIL(c.args.weight.data = nullptr), kArgument,
     "weight has elements but its data is null"},
    {"NullRstd", kAll, SPOIL(c.args.rstd.data = nullptr), kArgument,
     "rstd has elements but its data is null"},
    {"NullDx", kBackward | kAddBackward, SPOIL(c.args.dx.data = nullptr), kArgument,
     "dx has elements but its data is null"},
    {"OffItsElement", kOfX, SPOIL(c.args.x.data = reinterpret_cast<char*>(c.x) + 2), kArgument,
     "x's data is not aligned to its element of 4 bytes"},
    {"Integers", kOfX, SPOIL(c.args.x.dtype = BRIM_INT32), kDtype,
     "x is int32, expected one of float32, bfloat16, float16, float64"},
    {"IntegerWeight", kAll, SPOIL(c.args.weight.dtype = BRIM_INT32), kDtype,
     "weight is int32, expected one of float32, bfloat16, float16, float64"},

    // Shapes: FIELD-CASES 95.
    {"Case95WeightOneShort", kOfX, SPOIL(c.args.weight.shape[0] = 7), kArgument,
     "weight has 7 elements, last dimension of x is 8; x has shape (2,3,8)"},
    {"Case95WeightOneLong", kOfX, SPOIL(c.args.weight.shape[0] = 9), kArgument,
     "weight has 9 elements, last dimension of x is 8; x has shape (2,3,8)"},
    {"Case95WeightOfTwoAxes", kOfX, SPOIL(c.args.weight = view(c.weight, BRIM_FLOAT32, {1, 8})), kArgument,
     "weight has shape (1,8), expected (8), the last dimension of x"},
    {"Case95WeightBesideSum", kAddBackward, SPOIL(c.args.weight.shape[0] = 7), kArgument,
     "weight has 7 elements, last dimension of sum is 8; sum has shape (2,3,8)"},
    {"Case95Dweight", kBackward, SPOIL(c.args.dweight.shape[0] = 1), kArgument,
     "dweight has 1 elements, last dimension of x is 8; x has shape (2,3,8)"},
    {"Case95Residual", kAddForward, SPOIL(c.args.residual.shape[1] = 1), kArgument,
     "residual has shape (2,1,8), expected that of x, (2,3,8)"},
    {"Case95Sum", kAddForward, SPOIL(c.args.sum.shape[2] = 7), kArgument,
     "sum has shape (2,3,7), expected that of x, (2,3,8)"},
    {"Case95Y", kForward | kAddForward, SPOIL(c.args.y = view(c.y, BRIM_FLOAT32, {6, 8})), kArgument,
     "y has shape (6,8), expected that of x, (2,3,8)"},
    {"Case95Dy", kBackward, SPOIL(c.args.dy.shape[0] = 1), kArgument,
     "dy has shape (1,3,8), expected that of x, (2,3,8)"},
    {"Case95Dsum", kAddBackward, SPOIL(c.args.dsum.shape[0] = 1), kArgument,
     "dsum has shape (1,3,8), expected that of sum, (2,3,8)"},
    {"Case95Dx", kAddBackward, SPOIL(c.args.dx.rank = 2), kArgument,
     "dx has shape (2,3), expected that of sum, (2,3,8)"},
    {"Case95Dresidual", kAddBackward, SPOIL(c.args.dresidual.shape[2] = 4), kArgument,
     "dresidual has shape (2,3,4), expected that of sum, (2,3,8)"},
    {"RstdOneShort", kOfX, SPOIL(c.args.rstd.shape[0] = 5), kArgument,
     "rstd has shape (5), expected (6), a number for each row of x"},
    {"RstdOfTwoAxes", kAddBackward, SPOIL(c.args.rstd = view(c.rstd, BRIM_FLOAT32, {2, 3})), kArgument,
     "rstd has shape (2,3), expected (6), a number for each row of sum"},

    // Types.
    {"YOfAnotherType", kForward | kAddForward, SPOIL(c.args.y.dtype = BRIM_BFLOAT16), kDtype,
     "y is bfloat16, x is float32; they must have one type"},
    {"DyOfAnotherType", kBackward, SPOIL(c.args.dy.dtype = BRIM_FLOAT16), kDtype,
     "dy is float16, x is float32; they must have one type"},
    {"DxOfAnotherType", kAddBackward, SPOIL(c.args.dx.dtype = BRIM_FLOAT16), kDtype,
     "dx is float16, dy is float32; they must have one type"},
    {"DweightOfAnotherType", kBackward | kAddBackward, SPOIL(c.args.dweight.dtype = BRIM_BFLOAT16), kDtype,
     "dweight is bfloat16, weight is float32; they must have one type"},
    {"RstdOf16Bits", kAll, SPOIL(c.args.rstd.dtype = BRIM_BFLOAT16), kDtype,
     "rstd is bfloat16, expected float32"},
    {"RstdOfFloat64Rows", kAll, SPOIL(c.retype(BRIM_FLOAT64)), kDtype, "rstd is float32, expected float64"},
    {"WeightOfTheOther16Bits", kForward, SPOIL(c.retype(BRIM_BFLOAT16), c.args.weight.dtype = BRIM_FLOAT16),
     kDtype, "x is bfloat16 and weight is float16; these two types do not mix in one call"},
    {"WeightOfTheOther16BitsBesideAFloat32Sum", kAddForward,
     SPOIL(c.retype_x(BRIM_FLOAT16), c.args.weight.dtype = BRIM_BFLOAT16), kDtype,
     "weight is bfloat16 and x is float16; these two types do not mix in one call"},
    {"WeightOf64Bits", kForward, SPOIL(c.args.weight.dtype = BRIM_FLOAT64), kDtype,
     "weight is float64 and x is float32; these two types do not mix in one call"},
    {"WeightOf32BitsBesideFloat64", kForward,
     SPOIL(c.retype(BRIM_FLOAT64), c.args.rstd.dtype = BRIM_FLOAT64, c.args.weight.dtype = BRIM_FLOAT32),
     kDtype, "x is float64 and weight is float32; these two types do not mix in one call"},
    {"ResidualNarrowerThanX", kAddForward, SPOIL(c.args.residual.dtype = BRIM_BFLOAT16), kDtype,
     "residual is bfloat16, expected float32, as x"},
    {"ResidualOfTheOther16Bits", kAddForward,
     SPOIL(c.retype_x(BRIM_BFLOAT16), c.args.residual.dtype = BRIM_FLOAT16), kDtype,
     "residual is float16, expected bfloat16 or float32, as x"},
    {"ResidualOf64Bits", kAddForward, SPOIL(c.retype_x(BRIM_FLOAT16), c.args.residual.dtype = BRIM_FLOAT64),
     kDtype, "residual is float64, expected float16 or float32, as x"},
    {"SumNotAsTheResidual", kAddForward, SPOIL(c.retype_x(BRIM_BFLOAT16), c.args.sum.dtype = BRIM_BFLOAT16),
     kDtype, "sum is bfloat16, residual is float32; they must have one type"},
    {"SumOfTheOther16BitsThanDy", kAddBackward,
     SPOIL(c.retype(BRIM_BFLOAT16), c.args.dy.dtype = BRIM_FLOAT16), kDtype,
     "sum is bfloat16, expected float16 or float32, as dy"},
    {"DsumNotAsTheSum", kAddBackward, SPOIL(c.args.dsum.dtype = BRIM_BFLOAT16), kDtype,
     "dsum is bfloat16, sum is float32; they must have one type"},
    {"DresidualNotAsTheSum", kAddBackward, SPOIL(c.args.dresidual.dtype = BRIM_BFLOAT16), kDtype,
     "dresidual is bfloat16, sum is float32; they must have one type"},
    {"Float64OnTheGpu", kOfX,
     SPOIL(c.retype(BRIM_FLOAT64), c.args.rstd.dtype = BRIM_FLOAT64, c.on(BRIM_CUDA, 0),
           c.args.run.backend = BRIM_BACKEND_CUDA),
     kDtype, "x is float64, which only the cpu and reference backends take"},

    // Devices.
    {"WeightOnTheGpu", kOfX, SPOIL(c.args.weight.device = BRIM_CUDA), kDevice,
     "weight is on cuda:0, x is on cpu; they must be on one device"},
    {"RstdOnAnotherGpu", kAddBackward,
     SPOIL(c.on(BRIM_CUDA, 1), c.args.rstd.device_index = 2, c.args.run.backend = BRIM_BACKEND_AUTO), kDevice,
     "rstd is on cuda:2, sum is on cuda:1; they must be on one device"},
    {"CpuTensorsForCuda", kAddBackward, SPOIL(c.args.run.backend = BRIM_BACKEND_CUDA), kDevice,
     "sum is on cpu, which the cuda backend cannot reach"},
};

class NormRefusals : public testing::TestWithParam<NormRefusal> {};

// Running, describing and asking for workspace refuse alike, and nothing is written.
void expect_refusals(const NormRefusal& r) {
  for (size_t i = 0; i < std::size(kNormOps); ++i) {
    if (!(r.entries >> i & 1)) continue;
    NormCall call(kNormOps[i]);
    float* const outputs[] = {call.y, call.sum, call.dx, call.dresidual, call.dweight};
    for (float* out : outputs) std::memset(out, 0x5a, sizeof call.y);
    r.spoil(call);
    const std::string expected = std::string(entry::op_name(call.op)) + ": " + r.message;
    const Status status = call.run();
    EXPECT_EQ(status.code, r.code);
    EXPECT_EQ(status.message, expected);
    char text[64] = "x";
    EXPECT_EQ(brim_describe_plan(call.op, &call.args, text, sizeof text).message, expected);
    EXPECT_STREQ(text, "");
    size_t bytes = 1;
    EXPECT_EQ(brim_workspace_size(call.op, &call.args, &bytes).message, expected);
    EXPECT_EQ(bytes, 0u);
    for (const float* out : outputs)
      for (size_t j = 0; j < NormCall::kRoom; ++j) ASSERT_EQ(std::memcmp(out + j, "\x5a\x5a\x5a\x5a", 4), 0);
  }
}

TEST_P(NormRefusals, NameOpArgumentExpectedAndFound) { expect_refusals(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Rows, NormRefusals, testing::ValuesIn(kRefusals),
                         [](const auto& row) { return std::string(row.param.name); });

const NormRefusal kOverlaps[] = {
    {"YOfEqualRows", kForward | kAddForward, SPOIL(c.args.y.strides[0] = 0), kArgument,
     "the output y of shape (2,3,8) and strides (0,8,1) overlaps itself"},
    {"RstdExpanded", kForward, SPOIL(c.args.rstd.strides[0] = 0), kArgument,
     "the output rstd of shape (6) and strides (0) overlaps itself"},
    {"DweightExpanded", kBackward, SPOIL(c.args.dweight.strides[0] = 0), kArgument,
     "the output dweight of shape (8) and strides (0) overlaps itself"},
    {"YOneRowAheadOfX", kForward | kAddForward, SPOIL(c.args.y.data = c.x + 8), kArgument,
     "the output y overlaps x"},
    {"YIsXInOtherStrides", kForward,
     SPOIL(c.args.x = view(c.x, BRIM_FLOAT32, {2, 2, 8});
           c.args.y = view(c.x, BRIM_FLOAT32, {2, 2, 8}, {8, 16, 1}); c.args.rstd.shape[0] = 4),
     kArgument, "the output y overlaps x"},
    {"YOverTheWeight", kForward, SPOIL(c.args.y.data = c.weight), kArgument, "the output y overlaps weight"},
    {"YIsTheResidual", kAddForward, SPOIL(c.args.y.data = c.residual), kArgument,
     "the output y overlaps residual"},
    {"SumIsX", kAddForward, SPOIL(c.args.sum.data = c.x), kArgument, "the output sum overlaps x"},
    {"SumIsY", kAddForward, SPOIL(c.args.sum.data = c.y), kArgument, "the output sum overlaps y"},
    {"SumBehindTheResidual", kAddForward, SPOIL(c.args.sum.data = c.residual + 8), kArgument,
     "the output sum overlaps residual"},
    {"RstdInX", kForward, SPOIL(c.args.rstd.data = c.x), kArgument, "the output rstd overlaps x"},
    {"RstdInY", kForward | kAddForward, SPOIL(c.args.rstd.data = c.y + 4), kArgument,
     "the output rstd overlaps y"},
    {"DxIsX", kBackward, SPOIL(c.args.dx.data = c.x), kArgument, "the output dx overlaps x"},
    {"DxIsTheSum", kAddBackward, SPOIL(c.args.dx.data = c.sum), kArgument, "the output dx overlaps sum"},
    {"DxBehindDy", kBackward | kAddBackward, SPOIL(c.args.dx.data = c.dy + 8), kArgument,
     "the output dx overlaps dy"},
    {"DxHoldsRstd", kBackward, SPOIL(c.args.rstd.data = c.dx), kArgument, "the output dx overlaps rstd"},
    {"DweightIsWeight", kBackward | kAddBackward, SPOIL(c.args.dweight.data = c.weight), kArgument,
     "the output dweight overlaps weight"},
    {"DweightInDx", kBackward | kAddBackward, SPOIL(c.args.dweight.data = c.dx), kArgument,
     "the output dweight overlaps dx"},
    {"DxIsDsumOfAnotherType", kAddBackward, SPOIL(c.retype_x(BRIM_BFLOAT16); c.args.dx.data = c.dsum),
     kArgument, "the output dx overlaps dsum"},
    {"DresidualIsDy", kAddBackward, SPOIL(c.args.dresidual.data = c.dy), kArgument,
     "the output dresidual overlaps dy"},
    {"DxAndDresidualAreDsum", kAddBackward, SPOIL(c.args.dx = c.args.dresidual = c.args.dsum), kArgument,
     "the output dresidual overlaps dx"},
};
class NormOverlaps : public NormRefusals {};
TEST_P(NormOverlaps, NameBothTensors) { expect_refusals(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Rows, NormOverlaps, testing::ValuesIn(kOverlaps),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace brim
