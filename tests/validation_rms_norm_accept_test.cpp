// Calls of the norms that must not be refused, however odd they look, one row each; workspace; the canonical form.
#include <memory>
#include <random>
#include <vector>

#include "ops/rms_norm.h"
#include "validation_rms_norm.h"

namespace brim {
namespace {

enum : unsigned { kForward = 1, kBackward = 2, kAddForward = 4, kAddBackward = 8, kAll = 15 };

struct NormAcceptance {
  const char* name;
  unsigned entries;
  void (*change)(NormCall&);
};
void PrintTo(const NormAcceptance& a, std::ostream* out) { *out << a.name; }

#define CHANGE(...) [](NormCall& c) { __VA_ARGS__; }

void for_rows(NormCall& c, void (*change)(brim_tensor&)) {
  for (brim_tensor* t : c.tensors())
    if (t->dtype && t != &c.args.weight && t != &c.args.dweight && t != &c.args.rstd) change(*t);
}

const NormAcceptance kAccepted[] = {
    {"Plain", kAll, [](NormCall&) {}},
    {"EpsZero", kAll, CHANGE(c.args.eps = 0)},
    {"OffsetNegative", kAll, CHANGE(c.args.offset = -1)},
    {"Gemma", kAll, CHANGE(c.args.casting = BRIM_CASTING_GEMMA, c.args.offset = 1)},
    {"WeightAbsent", kAll, CHANGE(c.args.weight = c.args.dweight = {})},
    {"RstdNotWanted", kForward | kAddForward, CHANGE(c.args.rstd = {})},
    {"DxNotWanted", kBackward | kAddBackward, CHANGE(c.args.dx = {})},
    {"DweightNotWanted", kBackward | kAddBackward, CHANGE(c.args.dweight = {})},
    {"DresidualNotWanted", kAddBackward, CHANGE(c.args.dresidual = {})},
    {"OnlyDresidualWanted", kAddBackward, CHANGE(c.args.dx = c.args.dweight = {})},
    {"OnlyDweightWanted", kAddBackward, CHANGE(c.args.dx = c.args.dresidual = {})},
    {"DsumAbsent", kAddBackward, CHANGE(c.args.dsum = {})},
    {"DyAbsent", kAddBackward, CHANGE(c.args.dy = {})},
    {"DyAndRstdAbsent", kAddBackward, CHANGE(c.args.dy = c.args.rstd = {})},

    {"YIsX", kForward | kAddForward, CHANGE(c.args.y = c.args.x)},
    {"SumIsResidual", kAddForward, CHANGE(c.args.sum = c.args.residual)},
    {"YIsXAndSumIsResidual", kAddForward, CHANGE(c.args.y = c.args.x, c.args.sum = c.args.residual)},
    {"DxIsDy", kBackward | kAddBackward, CHANGE(c.args.dx = c.args.dy)},
    {"DxIsDsum", kAddBackward, CHANGE(c.args.dx = c.args.dsum)},
    {"DresidualIsDsum", kAddBackward, CHANGE(c.args.dresidual = c.args.dsum)},
    {"DxIsDyAndDresidualIsDsum", kAddBackward, CHANGE(c.args.dx = c.args.dy, c.args.dresidual = c.args.dsum)},
    {"DyIsX", kBackward, CHANGE(c.args.dy = c.args.x)},
    {"DsumIsDy", kAddBackward, CHANGE(c.args.dsum = c.args.dy)},
    {"ResidualIsX", kAddForward, CHANGE(c.args.residual = c.args.x)},

    {"ExpandedInputs", kAll,
     [](NormCall& c) {
       for (brim_tensor* t : {&c.args.x, &c.args.residual, &c.args.dy, &c.args.dsum, &c.args.weight})
         for (int64_t& s : t->strides) s = 0;
       if (c.op == BRIM_OP_add_rms_norm_backward) c.args.sum.strides[0] = 0;
     }},
    {"EverySecondElement", kAll,
     CHANGE(for_rows(c,
                     [](brim_tensor& t) {
                       for (int64_t& s : t.strides) s *= 2;
                     }))},
    {"SlicesOfWiderRows", kAll,
     CHANGE(for_rows(c,
                     [](brim_tensor& t) {
                       t.strides[0] = 30;
                       t.strides[1] = 10;
                     }))},
    {"StrideOfASizeOneAxisMeansNothing", kAll,
     CHANGE(for_rows(c,
                     [](brim_tensor& t) {
                       t.shape[0] = 1;
                       t.strides[0] = -77;
                     });
            if (c.args.rstd.dtype) c.args.rstd.shape[0] = 3)},
    {"NoRows", kAll,
     CHANGE(for_rows(c,
                     [](brim_tensor& t) {
                       t.shape[1] = 0;
                       t.strides[0] = -5;
                       t.data = nullptr;
                     });
            c.args.rstd.shape[0] = 0; c.args.rstd.data = nullptr)},
    {"NoColumns", kAll,
     CHANGE(for_rows(c,
                     [](brim_tensor& t) {
                       t.shape[2] = 0;
                       t.data = nullptr;
                     });
            for (brim_tensor * t
                 : {&c.args.weight, &c.args.dweight}) t->shape[0] = 0,
            t->data = nullptr)},
    {"OneAxis", kAll,
     CHANGE(for_rows(c,
                     [](brim_tensor& t) {
                       t.rank = 1;
                       t.shape[0] = kNormHidden;
                       t.strides[0] = 1;
                     });
            c.args.rstd.shape[0] = 1)},
    {"FiveAxes", kAll,
     CHANGE(for_rows(c,
                     [](brim_tensor& t) {
                       const int64_t shape[] = {2, 1, 3, 1, 8}, strides[] = {24, 24, 8, 8, 1};
                       t.rank = 5;
                       for (int i = 0; i < 5; ++i) t.shape[i] = shape[i], t.strides[i] = strides[i];
                     }))},
    {"OffTheVector", kAll,
     CHANGE(for_rows(c, [](brim_tensor& t) { t.data = static_cast<float*>(t.data) + 1; }))},

    {"Bfloat16", kAll, CHANGE(c.retype(BRIM_BFLOAT16))},
    {"Float16", kAll, CHANGE(c.retype(BRIM_FLOAT16))},
    {"Float64", kAll, CHANGE(c.retype(BRIM_FLOAT64); c.args.rstd.dtype = BRIM_FLOAT64)},
    {"Float32WeightBeside16Bits", kAll,
     CHANGE(c.retype(BRIM_BFLOAT16); c.args.weight.dtype = BRIM_FLOAT32;
            if (c.args.dweight.dtype) c.args.dweight.dtype = BRIM_FLOAT32)},
    {"WeightOf16BitsBesideFloat32", kAll,
     CHANGE(c.args.weight.dtype = BRIM_FLOAT16;
            if (c.args.dweight.dtype) c.args.dweight.dtype = BRIM_FLOAT16)},
    {"Float32ResidualStream", kAddForward | kAddBackward, CHANGE(c.retype_x(BRIM_BFLOAT16))},
    {"Float32SumWithDxAlone", kAddBackward,
     CHANGE(c.args.dy = c.args.dresidual = {}; c.args.dx.dtype = BRIM_FLOAT16)},
};

class NormAccepted : public testing::TestWithParam<NormAcceptance> {};
TEST_P(NormAccepted, Runs) {
  for (size_t i = 0; i < std::size(kNormOps); ++i) {
    if (!(GetParam().entries >> i & 1)) continue;
    NormCall call(kNormOps[i]);
    GetParam().change(call);
    const Status status = call.run();
    EXPECT_EQ(status.code, BRIM_OK) << status.message;
    EXPECT_STREQ(status.message, "");
  }
}
INSTANTIATE_TEST_SUITE_P(Rows, NormAccepted, testing::ValuesIn(kAccepted),
                         [](const auto& row) { return std::string(row.param.name); });

// Only dweight asks for workspace, and too little of it, or none, or at an odd address, is refused.
TEST(NormWorkspace, IsCheckedWhereItIsNeeded) {
  for (brim_backend backend : {BRIM_BACKEND_REFERENCE, BRIM_BACKEND_CPU})
    for (brim_op op : kNormOps) {
      NormCall call(op);
      call.args.run.backend = backend;
      size_t bytes = 7;
      const Status asked = brim_workspace_size(op, &call.args, &bytes);
      if (asked.code == BRIM_NOT_AVAILABLE) continue;
      ASSERT_TRUE(ok(asked)) << asked.message;
      if (call.args.dweight.dtype == BRIM_DTYPE_NONE) { EXPECT_EQ(bytes, 0u); }
      if (bytes == 0) {
        EXPECT_TRUE(ok(call.run()));
        continue;
      }
      const std::string prefix = std::string(entry::op_name(op)) + ": workspace ";
      const std::string needed = " bytes, needed are " + std::to_string(bytes);
      std::vector<std::byte> room(bytes + 32);
      void* aligned = room.data();
      size_t left = room.size();
      std::align(16, bytes, aligned, left);
      call.args.workspace_bytes = bytes;
      EXPECT_EQ(call.run().message, prefix + "has 0" + needed);
      call.args.workspace = aligned;
      call.args.workspace_bytes = bytes - 1;
      EXPECT_EQ(call.run().message, prefix + "has " + std::to_string(bytes - 1) + needed);
      EXPECT_EQ(call.run().code, BRIM_INVALID_ARGUMENT);
      call.args.workspace = static_cast<std::byte*>(aligned) + 8;
      call.args.workspace_bytes = bytes;
      EXPECT_EQ(call.run().message, prefix + "is not aligned to 16 bytes");
      call.args.workspace = aligned;
      EXPECT_TRUE(ok(call.run()));
      entry::Prepared prepared;
      ASSERT_TRUE(ok(entry::prepare(op, &call.args, &prepared)));
      EXPECT_EQ(prepared.workspace_bytes, bytes);
      EXPECT_TRUE(ok(entry::run(prepared, &call.args)));
      call.args.dweight = {};
      EXPECT_TRUE(ok(brim_workspace_size(op, &call.args, &bytes)));
      EXPECT_EQ(bytes, 0u);
    }
}

ops::RmsNormProblem problem_of(const NormCall& c) {
  return ops::make_rms_norm_problem(
      c.args, c.op == BRIM_OP_add_rms_norm_forward || c.op == BRIM_OP_add_rms_norm_backward,
      c.op == BRIM_OP_rms_norm_backward || c.op == BRIM_OP_add_rms_norm_backward);
}

TEST(NormProblem, RowsOfContiguousTensorsAreOneAxis) {
  for (brim_op op : kNormOps) {
    const NormCall call(op);
    const ops::RmsNormProblem p = problem_of(call);
    EXPECT_EQ(p.rows, kNormRows);
    EXPECT_EQ(p.hidden, kNormHidden);
    EXPECT_EQ(p.axes, 1);
    EXPECT_EQ(p.sizes[0], kNormRows);
    EXPECT_EQ(p.s.axis[0], kNormHidden);
    EXPECT_EQ(p.s.column, 1);
    EXPECT_EQ(p.alignment, 16);
    EXPECT_EQ(p.weight_alignment, 16);
    EXPECT_EQ(ops::row_offset(p, p.s, 5), 40);
  }
}

TEST(NormProblem, AxesThatOneTensorStepsThroughOtherwiseStayTwo) {
  for (brim_op op : kNormOps) {
    NormCall call(op);
    brim_tensor& other = call.args.y.dtype ? call.args.y : call.args.dy;
    other.strides[0] = 8;
    other.strides[1] = 16;
    const ops::RmsNormProblem p = problem_of(call);
    EXPECT_EQ(p.axes, 2);
    EXPECT_EQ(p.sizes[0], 2);
    EXPECT_EQ(p.sizes[1], 3);
    EXPECT_EQ(ops::row_offset(p, p.s, 4), 32);
    EXPECT_EQ(ops::row_offset(p, call.args.y.dtype ? p.y : p.dy, 4), 24);
  }
}

TEST(NormProblem, AlignmentIsThatOfTheWorstTensorOfRows) {
  for (brim_op op : kNormOps) {
    NormCall call(op);
    brim_tensor& last = call.args.y.dtype ? call.args.y : call.args.dx;
    last.data = static_cast<float*>(last.data) + 2;
    EXPECT_EQ(problem_of(call).alignment, 8);
    last.strides[1] = 9;
    EXPECT_EQ(problem_of(call).alignment, 4);
    call.args.weight.data = call.weight + 1;
    EXPECT_EQ(problem_of(call).weight_alignment, 4);
  }
}

// Validation and plans on calls spoiled at random: any answer will do, but it must be an answer. Nothing is run.
TEST(RandomNormCalls, AreAnswered) {
  std::mt19937 random(7);
  const auto pick = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  const auto number = [&] {
    constexpr int64_t kNasty[] = {0,         1,         2,         3,         8,         -1,
                                  65536,     INT32_MAX, 1ll << 32, 1ll << 40, 1ll << 59, 1ll << 60,
                                  1ll << 62, INT64_MAX, INT64_MIN, 1ll << 31, 6,         24};
    return kNasty[pick(std::size(kNasty))];
  };
  int accepted = 0, refused = 0;
  for (int i = 0; i < 100000; ++i) {
    NormCall call(kNormOps[pick(4)]);
    const auto tensors = call.tensors();
    if (pick(4) == 0)  // large in a consistent way
      for (int axis = pick(3), n = 0; n < 2; ++n, axis = (axis + 1) % 3) {
        const int64_t size = number();
        for (brim_tensor* t : tensors)
          if (t->rank == 3) t->shape[axis] = size, t->strides[axis] = number();
        if (axis == 2) call.args.weight = call.args.dweight = {};
        call.args.rstd = {};
      }
    for (int changes = pick(4); changes > 0; --changes) {
      brim_tensor& t = *tensors[static_cast<size_t>(pick(11))];
      switch (pick(8)) {
        case 0: t.dtype = pick(9) - 1; break;
        case 1: t.rank = pick(8) - 1; break;
        case 2: t.device = pick(3); break;
        case 3: t.data = reinterpret_cast<void*>(static_cast<uintptr_t>(number())); break;
        case 4:
        case 5: t.shape[pick(5)] = number(); break;
        default: t.strides[pick(5)] = number(); break;
      }
    }
    call.args.run.backend = i % 4;
    char text[256];
    const Status answers[] = {
        brim_describe_plan(call.op, &call.args, text, sizeof text),
        entry::describe_plan_on(call.op, &call.args, core::kKnownDevices[i % 7], text, sizeof text)};
    for (const Status& status : answers) {
      ASSERT_NE(status.code, BRIM_INTERNAL_ERROR) << status.message;
      if (ok(status)) {
        ASSERT_STRNE(text, "");
      } else if (status.code != BRIM_CUDA_ERROR) {
        ASSERT_EQ(std::string(status.message).rfind(std::string(entry::op_name(call.op)) + ": ", 0), 0u)
            << status.message;
      }
      ok(status) ? ++accepted : ++refused;
    }
  }
  EXPECT_GT(accepted, 5000);
  EXPECT_GT(refused, 20000);
}

}  // namespace
}  // namespace brim
