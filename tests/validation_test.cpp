// Refusals that any op would make: the args struct, views, element types, devices. One row each, code and
// exact text.
#include "validation.h"

#include "entry/entry.h"

namespace brim {
namespace {

const Refusal kRefusals[] = {
    // The args struct and the backend (entry.cpp).
    {"SizeZero", [](Call& c) { c.args.struct_size = 0; }, kArgument,
     "struct_size is 0, this library knows up to 808 bytes: set it to sizeof the args struct"},
    {"SizeBelowItsOwnField", [](Call& c) { c.args.struct_size = 7; }, kArgument,
     "struct_size is 7, this library knows up to 808 bytes: set it to sizeof the args struct"},
    {"SizeOfANewerCaller", [](Call& c) { c.args.struct_size += 8; }, kArgument,
     "struct_size is 816, this library knows up to 808 bytes: set it to sizeof the args struct, or update "
     "brim (the "
     "caller is newer)"},
    {"BackendUnknown", [](Call& c) { c.args.run.backend = 4; }, kArgument,
     "backend is 4, expected 0 (auto) to 3"},
    {"BackendNegative", [](Call& c) { c.args.run.backend = -1; }, kArgument,
     "backend is -1, expected 0 (auto) to 3"},

    // Options.
    {"Layout", [](Call& c) { c.args.layout = 3; }, kArgument, "layout is 3, expected 0 to 2"},
    {"Pairing", [](Call& c) { c.args.pairing = -1; }, kArgument, "pairing is -1, expected 0 to 2"},
    {"Inverse", [](Call& c) { c.args.inverse = 2; }, kArgument, "inverse is 2, expected 0 to 1"},
    {"SectionsInterleaved", [](Call& c) { c.args.sections_interleaved = 2; }, kArgument,
     "sections_interleaved is 2, expected 0 to 1"},

    // Well-formed views (core/check.cpp), one row per argument for the first and one per message for the
    // rest.
    {"QAbsent", [](Call& c) { c.args.q = {}; }, kDtype, "q has no element type: it is absent, but needed"},
    {"CosAbsent", [](Call& c) { c.args.cos = {}; }, kDtype,
     "cos has no element type: it is absent, but needed"},
    {"SinAbsent", [](Call& c) { c.args.sin = {}; }, kDtype,
     "sin has no element type: it is absent, but needed"},
    {"QOutAbsent", [](Call& c) { c.args.q_out = {}; }, kDtype,
     "q_out has no element type: it is absent, but needed"},
    {"QUnknownType", [](Call& c) { c.args.q.dtype = 99; }, kDtype,
     "q has an element type brim does not know"},
    {"KUnknownType", [](Call& c) { c.args.k.dtype = -3; }, kDtype,
     "k has an element type brim does not know"},
    {"PositionsUnknownType", [](Call& c) { c.position_ids({kS}, 7); }, kDtype,
     "position_ids has an element type brim does not know"},
    {"RankZero", [](Call& c) { c.args.q.rank = 0; }, kArgument, "q has rank 0, expected 1 to 5"},
    {"RankSix", [](Call& c) { c.args.k_out.rank = 6; }, kArgument, "k_out has rank 6, expected 1 to 5"},
    {"NegativeSize", [](Call& c) { c.args.q.shape[2] = -1; }, kArgument,
     "q has the negative size -1 on axis 2"},
    {"NegativeStride", [](Call& c) { c.args.k.strides[2] = -8; }, kArgument,
     "k has the negative stride -8 on axis 2, which is not served"},
    {"ElementCountOverflows",
     [](Call& c) {
       for (int64_t& n : c.args.q.shape) n = int64_t{1} << 16;
       for (int64_t& s : c.args.q.strides) s = 0;
     },
     kArgument, "q of shape (65536,65536,65536,65536) and strides (0,0,0,0) reaches beyond 64-bit offsets"},
    {"SizesOfAnEmptyViewOverflow",
     [](Call& c) {
       c.args.q.shape[0] = c.args.q.shape[2] = int64_t{1} << 40;
       c.args.q.shape[1] = 0;
     },
     kArgument,
     "q of shape (1099511627776,0,1099511627776,8) and strides (120,40,8,1) reaches beyond 64-bit offsets"},
    {"StrideTimesSizeOverflows",
     [](Call& c) {
       c.args.q.strides[0] = INT64_MAX;
       c.args.q.shape[0] = 4;
     },
     kArgument,
     "q of shape (4,3,5,8) and strides (9223372036854775807,40,8,1) reaches beyond 64-bit offsets"},
    {"BytesOverflow", [](Call& c) { c.args.q_out.strides[0] = INT64_MAX / 2; }, kArgument,
     "q_out of shape (2,3,5,8) and strides (4611686018427387903,40,8,1) reaches beyond 64-bit offsets"},
    {"BeyondAnyAddressSpace", [](Call& c) { c.args.q_out.strides[0] = int64_t{1} << 60; }, kArgument,
     "q_out of shape (2,3,5,8) and strides (1152921504606846976,40,8,1) reaches beyond 64-bit offsets"},
    {"TwiceItsBytesOverflow", [](Call& c) { c.args.q_out.strides[0] = int64_t{1} << 58; }, kArgument,
     "q_out of shape (2,3,5,8) and strides (288230376151711744,40,8,1) reaches beyond 64-bit offsets"},
    {"NullData", [](Call& c) { c.args.sin.data = nullptr; }, kArgument,
     "sin has elements but its data is null"},
    {"UnalignedToItsElement", [](Call& c) { c.args.q.data = reinterpret_cast<char*>(c.q) + 2; }, kArgument,
     "q's data is not aligned to its element of 4 bytes"},
    {"PositionsUnaligned",
     [](Call& c) {
       c.position_ids({kS});
       c.args.positions.data = reinterpret_cast<char*>(c.positions) + 4;
     },
     kArgument, "position_ids's data is not aligned to its element of 8 bytes"},

    // Element types.
    {"QInteger", [](Call& c) { c.args.q.dtype = BRIM_INT32; }, kDtype,
     "q is int32, expected one of float32, bfloat16, float16, float64"},
    {"CosInteger", [](Call& c) { c.args.cos.dtype = BRIM_INT64; }, kDtype,
     "cos is int64, expected one of float32, bfloat16, float16, float64"},
    {"KOutInteger", [](Call& c) { c.args.k_out.dtype = BRIM_INT32; }, kDtype,
     "k_out is int32, expected one of float32, bfloat16, float16, float64"},
    {"PositionsFloat", [](Call& c) { c.position_ids({kS}, BRIM_FLOAT32); }, kDtype,
     "position_ids is float32, expected one of int32, int64"},
    {"QOutOtherType", [](Call& c) { c.args.q_out.dtype = BRIM_BFLOAT16; }, kDtype,
     "q_out is bfloat16, q is float32; they must have one type"},
    {"KOutOtherType", [](Call& c) { c.args.k_out.dtype = BRIM_FLOAT16; }, kDtype,
     "k_out is float16, k is float32; they must have one type"},
    {"SinOtherType", [](Call& c) { c.args.sin.dtype = BRIM_FLOAT16; }, kDtype,
     "sin is float16, cos is float32; they must have one type"},
    {"Bfloat16MeetsFloat16",
     [](Call& c) {
       c.args.q.dtype = c.args.q_out.dtype = BRIM_BFLOAT16;
       c.args.k.dtype = c.args.k_out.dtype = BRIM_FLOAT16;
     },
     kDtype, "q is bfloat16 and k is float16; these two types do not mix in one call"},
    {"Float16MeetsBfloat16Tables",
     [](Call& c) {
       c.retype(BRIM_FLOAT16);
       c.args.cos.dtype = c.args.sin.dtype = BRIM_BFLOAT16;
     },
     kDtype, "cos is bfloat16 and q is float16; these two types do not mix in one call"},
    {"Float64MeetsFloat32Tables",
     [](Call& c) {
       c.no_k();
       c.args.q = view(c.q, BRIM_FLOAT64, {1, 1, kS, kD});
       c.args.q_out = view(c.q_out, BRIM_FLOAT64, {1, 1, kS, kD});
     },
     kDtype, "q is float64 and cos is float32; these two types do not mix in one call"},
    {"Float64TablesMeetFloat32", [](Call& c) { c.args.cos.dtype = c.args.sin.dtype = BRIM_FLOAT64; }, kDtype,
     "cos is float64 and q is float32; these two types do not mix in one call"},
    {"Float64OnCuda",
     [](Call& c) {
       c.retype(BRIM_FLOAT64);
       c.on(BRIM_CUDA, 0);
       c.args.run.backend = BRIM_BACKEND_AUTO;
     },
     kDtype, "q is float64, which only the cpu and reference backends take"},

    // Devices.
    {"KOnTheGpu", [](Call& c) { c.args.k.device = BRIM_CUDA; }, kDevice,
     "k is on cuda:0, q is on cpu; they must be on one device"},
    {"CosOnTheCpu",
     [](Call& c) {
       c.on(BRIM_CUDA, 1);
       c.args.cos.device = BRIM_CPU;
       c.args.run.backend = BRIM_BACKEND_CUDA;
     },
     kDevice, "cos is on cpu, q is on cuda:1; they must be on one device"},
    {"PositionsOnAnotherGpu",
     [](Call& c) {
       c.on(BRIM_CUDA, 1);
       c.position_ids({kS});
       c.args.positions.device = BRIM_CUDA;
       c.args.run.backend = BRIM_BACKEND_AUTO;
     },
     kDevice, "position_ids is on cuda:0, q is on cuda:1; they must be on one device"},
    {"UnknownDevice", [](Call& c) { c.on(5, 0); }, kDevice,
     "q is on device type 5; brim knows 0 (cpu) and 1 (cuda)"},
    {"CpuTensorsForCuda", [](Call& c) { c.args.run.backend = BRIM_BACKEND_CUDA; }, kDevice,
     "q is on cpu, which the cuda backend cannot reach"},
    {"CudaTensorsForCpu",
     [](Call& c) {
       c.on(BRIM_CUDA, 2);
       c.args.run.backend = BRIM_BACKEND_CPU;
     },
     kDevice, "q is on cuda:2, which the cpu or reference backend cannot reach"},
    {"CudaTensorsForReference", [](Call& c) { c.on(BRIM_CUDA, 0); }, kDevice,
     "q is on cuda:0, which the cpu or reference backend cannot reach"},
};

class CommonRefusal : public testing::TestWithParam<Refusal> {};
TEST_P(CommonRefusal, NamesOpArgumentExpectedAndFound) { expect_refusal(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Rows, CommonRefusal, testing::ValuesIn(kRefusals),
                         [](const auto& row) { return std::string(row.param.name); });

// An older caller's struct ends early: the fields that it lacks are zero, whatever stands behind it in
// memory.
TEST(StructSize, SmallerMeansZeros) {
  Call call;
  call.args.struct_size = offsetof(brim_rope_args, inverse);
  call.args.inverse = 77;
  call.args.run.backend = 99;
  char text[64];
  // The backend becomes 0 (auto: cpu); the refusal below comes from the layout, so the cut struct was read.
  call.args.layout = 9;
  const Status status = brim_describe_plan(BRIM_OP_rope_forward, &call.args, text, sizeof text);
  EXPECT_STREQ(status.message, "rope_forward: layout is 9, expected 0 to 2");
  // Just the size field: everything is absent.
  call.args.struct_size = sizeof(uint64_t);
  EXPECT_STREQ(rope_forward(call.args).message,
               "rope_forward: q has no element type: it is absent, but needed");
}

TEST(Entry, NullArgs) {
  const Status status = brim_rope_forward(nullptr);
  EXPECT_EQ(status.code, BRIM_INVALID_ARGUMENT);
  EXPECT_STREQ(status.message, "rope_forward: args is null");
  char text[64];
  EXPECT_STREQ(brim_describe_plan(BRIM_OP_rope_backward, nullptr, text, sizeof text).message,
               "rope_backward: args is null");
}

TEST(Entry, UnknownOp) {
  Call call;
  char text[8];
  size_t bytes;
  for (brim_op op : {-1, static_cast<int>(BRIM_OP_COUNT), 1000}) {
    const std::string expected =
        "brim: there is no op " + std::to_string(op) + ", expected 0 to " + std::to_string(BRIM_OP_COUNT - 1);
    const Status plan = brim_describe_plan(op, &call.args, text, sizeof text);
    EXPECT_EQ(plan.code, BRIM_INVALID_ARGUMENT);
    EXPECT_EQ(plan.message, expected);
    EXPECT_EQ(brim_workspace_size(op, &call.args, &bytes).message, expected);
  }
}

TEST(Entry, NullResults) {
  Call call;
  char text[8];
  EXPECT_STREQ(brim_describe_plan(0, &call.args, nullptr, 8).message,
               "brim_describe_plan: text is null or size is 0");
  EXPECT_STREQ(brim_describe_plan(0, &call.args, text, 0).message,
               "brim_describe_plan: text is null or size is 0");
  EXPECT_STREQ(brim_workspace_size(0, &call.args, nullptr).message, "brim_workspace_size: bytes is null");
}

TEST(Entry, UnknownBackendAndPath) {
  EXPECT_STREQ(brim_backend_status(-1).message, "brim: there is no backend -1");
  EXPECT_EQ(brim_backend_status(-1).code, BRIM_INVALID_ARGUMENT);
  for (brim_backend backend : {BRIM_BACKEND_AUTO, BRIM_BACKEND_CPU, BRIM_BACKEND_REFERENCE})
    EXPECT_EQ(brim_backend_status(backend).code, BRIM_OK);
  Call call;
  call.args.run.path = "no such path";
  const Status status = rope_forward(call.args);
  EXPECT_EQ(status.code, BRIM_NOT_AVAILABLE);
  EXPECT_STREQ(status.message, "rope: the reference backend has no path 'no such path'");
}

TEST(Entry, NamesOfOps) {
  EXPECT_STREQ(entry::op_name(BRIM_OP_rope_backward), "rope_backward");
  EXPECT_STREQ(entry::op_family(BRIM_OP_rope_backward), "rope");
  EXPECT_STREQ(entry::op_mode(BRIM_OP_rope_backward), "backward");
}

// The longest names that a message can carry are cut, not overrun.
TEST(Message, EndsInAZero) {
  Call call;
  const std::string path(2000, 'p');
  call.args.run.path = path.c_str();
  const Status status = rope_forward(call.args);
  EXPECT_EQ(status.code, BRIM_NOT_AVAILABLE);
  EXPECT_EQ(std::strlen(status.message), sizeof status.message - 1);
}

}  // namespace
}  // namespace brim
