// What there is to check and to bench of every op: cases that brim check, brim bench and the tests share. No
// op is named here; each op's cases are found through the list.
//
// A case names tensors in host storage and how to fill them, builds the op's args struct from views of them,
// and says what must come out. It knows nothing of devices: the harness allocates, poisons, uploads, runs and
// compares.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "brim/brim.h"
#include "core/copy_pattern.h"
#include "ops/model_shape.h"

namespace brim::ops {

enum class Role { input, output, in_place };

// Writes the elements of a tensor, in row-major order of its shape, before they are rounded to its type.
using Random = std::mt19937_64;
using Fill = std::function<void(std::span<double> values, Random& random)>;
void fill_normal(std::span<double> values, Random& random);  // standard normal
void fill_cos(std::span<double> values, Random& random);     // cosines of angles uniform in a turn,
void fill_sin(std::span<double> values, Random& random);  // and the sines of the same angles when drawn alike
Fill fill_index(int64_t limit);                           // integers uniform in [0, limit)

struct CaseTensor {
  std::string name;
  Role role = Role::input;
  brim_dtype dtype = BRIM_DTYPE_NONE;  // BRIM_DTYPE_NONE: absent
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};  // empty: contiguous
  int64_t offset = 0;                 // elements from the start of its storage: slices and unaligned bases
  int storage = -1;  // tensors with the same number from 0 up share one storage (packed q, k and v)
  int draw = -1;     // tensors with the same number from 0 up draw the same random numbers
  Fill fill = {};    // inputs and in-place tensors only
};

// Elements of every tensor of a case, row-major, in float64; empty for those that are absent or not read.
using Values = std::vector<std::vector<double>>;

// What one output must hold; all empty where it is not compared in a sample.
struct Expected {
  std::vector<double> value;  // the result in float64; NaN where the element must be NaN
  std::vector<double>
      magnitude;  // the largest term of the sum that forms the element; 0: must equal `value` exactly
  // What float32 arithmetic with a fused multiply-add gives, for ops that promise these bits; else empty.
  std::vector<double> fused;
};

// Runs the case in float64 through the reference backend on other inputs; answers the outputs.
using Oracle = std::function<Values(const Values& inputs)>;

// A part of a case that is compared on its own: tensor i keeps `count` indices from `begin` on along `axis`.
struct Slice {
  int axis = -1;  // -1: whole
  int64_t begin = 0, count = 0;
};
using Sample = std::vector<Slice>;  // one a tensor

using Fields = std::vector<std::pair<std::string, int64_t>>;

struct Case {
  std::string name;         // letters, digits and underscores; unique among the cases of its op
  brim_dtype dtype;         // the one to show
  Fields shape;             // the fields of SPEC's `shape` object
  std::string layout = {};  // how the tensors of a bench case lie in memory, in the op's words
  std::vector<CaseTensor> tensors;

  // The op's args struct on `views` (one a tensor, in order). Must work for any element types and sizes.
  std::function<std::shared_ptr<void>(std::span<const TensorView> views, const brim_run& run)> bind;
  // Index i of the answer belongs to tensor i; inputs get an empty Expected.
  std::function<std::vector<Expected>(const Values& inputs, const Oracle& oracle)> expect;
  // Largest error of tensor i in ulps of its type at `magnitude`, on a path with or without a fused
  // multiply-add.
  std::function<double(size_t tensor, bool fused)> limit_ulp;
  // Gives the args what brim_workspace_size asks for; null: the op never asks.
  std::function<void(void* args, void* workspace, uint64_t bytes)> set_workspace;

  std::vector<Sample> samples;  // empty: all of it is compared
  bool bad_data = false;  // CPU backends must refuse it; a GPU must set the flag and poison as `expect` says
  bool in_place() const;
  int64_t bytes_read = 0, bytes_written = 0;  // what must move
  core::CopyPattern wall =
      core::CopyPattern::copy;  // the plain copy of as many bytes that it is timed beside
};

// What `brim bench` and `brim plan` are asked for.
struct BenchRequest {
  const ModelShape* model = nullptr;  // null: the op's own list of shapes
  std::vector<int64_t> tokens;        // empty: the op's own choice
  brim_dtype dtype = BRIM_BFLOAT16;
  std::vector<std::string> layouts;  // empty: the op's usual one
  bool large = false;                // sizes for a GPU; else for a CPU
};

// The cases of one op entry. `large` are those beyond 2^31 elements: never shrunk, skipped where memory is
// short.
struct CaseList {
  std::vector<Case> (*check)();
  std::vector<Case> (*large)();
  std::vector<Case> (*bench)(const BenchRequest& request);  // std::invalid_argument when it cannot be met
};

// Offered by the op's room; and by number.
#define BRIM_OP(family, mode, args) const CaseList& case_list_##family##_##mode();
#include "brim/ops.inc"
#undef BRIM_OP
const CaseList& case_list(brim_op op);

}  // namespace brim::ops
