#include "ops/rope_case.h"

#include <array>
#include <cmath>

#include "core/tensor.h"

namespace brim::ops {
namespace {

using namespace rope_tensor;

constexpr int64_t kSlice = 8;  // elements that `sliced` heads start at

// Shape and strides of q or k, of n heads, when token i of sequence b starts at b*batch + i*seq and its head
// at n*head.
struct HeadStrides {
  int64_t batch, seq, head, dim;
};
std::vector<int64_t> in_layout(brim_rope_layout layout, int64_t batch, int64_t seq, int64_t head,
                               int64_t dim) {
  switch (layout) {
    case BRIM_LAYOUT_BSHD: return {batch, seq, head, dim};
    case BRIM_LAYOUT_THD: return {seq, head, dim};
    default: return {batch, head, seq, dim};
  }
}

HeadStrides token_major(const RopeSpec& x, int64_t heads) { return {x.s * heads * x.d, heads * x.d, x.d, 1}; }
HeadStrides head_major(const RopeSpec& x, int64_t heads) { return {x.s * heads * x.d, x.d, x.s * x.d, 1}; }
HeadStrides contiguous(const RopeSpec& x, int64_t heads) {
  return x.layout == BRIM_LAYOUT_BHSD ? head_major(x, heads) : token_major(x, heads);
}
HeadStrides transposed(const RopeSpec& x, int64_t heads) {
  return x.layout == BRIM_LAYOUT_BHSD ? token_major(x, heads) : head_major(x, heads);
}

// Lays tensor `index` (q, k or one of their outputs) out as the spec's view says.
void lay_out(const RopeSpec& x, int index, CaseTensor& t) {
  const bool is_k = index == kK || index == kKOut, is_output = index == kQOut || index == kKOut;
  const int64_t heads = is_k ? x.hk : x.h;
  HeadStrides strides = contiguous(x, heads);
  switch (x.view) {
    case RopeView::contiguous: break;
    case RopeView::transposed: strides = transposed(x, heads); break;
    case RopeView::packed: {
      const int64_t width = (x.h + 2 * x.hk) * x.d;
      strides = {x.s * width, width, x.d, 1};
      t.offset = is_k ? x.h * x.d : 0;
      t.storage = is_output;
      break;
    }
    case RopeView::sliced: {
      const int64_t width = x.d + kSlice;
      strides = {x.s * heads * width, heads * width, width, 1};
      t.offset = kSlice;
      break;
    }
    case RopeView::expanded:
      if (!is_output) strides = {0, 0, 0, 0};
      break;
    case RopeView::expanded_heads:
      if (!is_output) strides = {x.s * x.d, x.d, 0, 1};
      break;
    case RopeView::inner_strided: strides = {2 * strides.batch, 2 * strides.seq, 2 * strides.head, 2}; break;
    case RopeView::unaligned: t.offset = 1; break;
    case RopeView::mixed:
      if (index == kK || index == kQOut) strides = transposed(x, heads);
      break;
  }
  t.shape = in_layout(x.layout, x.b, x.s, heads, x.d);
  t.strides = in_layout(x.layout, strides.batch, strides.seq, strides.head, strides.dim);
}

// cos or sin. Both halves of a full-width table get numbers of their own: only the first may be read.
CaseTensor table(const RopeSpec& x, const char* name, Fill fill) {
  CaseTensor t{.name = name, .dtype = x.table, .draw = 0, .fill = std::move(fill)};
  const int64_t width = x.full_width ? x.r : x.r / 2;
  switch (x.tables) {
    case RopeTables::one_seq: t.shape = {1, x.s, width}; break;
    case RopeTables::batch_seq: t.shape = {x.b, x.s, width}; break;
    case RopeTables::axes_1s: t.shape = {3, 1, x.s, width}; break;
    case RopeTables::axes_bs: t.shape = {3, x.b, x.s, width}; break;
    default: t.shape = {x.table_rows(), width}; break;
  }
  if (x.table_stride != 1) {
    t.strides.resize(t.shape.size());
    t.strides.back() = x.table_stride;
    int64_t stride = x.table_stride > 0 ? x.table_stride * width : 1;
    for (size_t i = t.shape.size() - 1; i-- > 0; stride *= t.shape[i]) t.strides[i] = stride;
  }
  t.offset = x.view == RopeView::unaligned;
  return t;
}

CaseTensor positions(const RopeSpec& x) {
  CaseTensor t{.name = "positions", .dtype = x.positions};
  if (x.tables == RopeTables::pos_s)
    t.shape = {x.s};
  else
    t.shape = {x.tables == RopeTables::pos_bs ? x.b : 1, x.s};
  const int64_t rows = x.table_rows();
  t.fill = fill_index(rows);
  if (x.data == RopeData::bad_positions)
    t.fill = [rows](std::span<double> values, Random& random) {
      fill_index(rows)(values, random);
      const double bad[] = {-1, static_cast<double>(rows), -2147483648.0, 2147483647.0};
      for (size_t i = 0; i < values.size(); i += 3) values[i] = bad[i / 3 % 4];
    };
  return t;
}

void fill_special(std::span<double> values, Random& random) {
  fill_normal(values, random);
  const double special[] = {0.0,      -0.0,       INFINITY, -INFINITY, NAN,
                            0x1p-149, -0x1.8p-24, 0x1p-126, 0x1p-14,   60000.0};
  for (double& v : values)
    if (random() % 4 == 0) v = special[random() % std::size(special)];
}

std::array<int32_t, 3> sections_of(const RopeSpec& x) {
  if (!has_axes(x.tables)) return {};
  const int32_t half = static_cast<int32_t>(x.r / 2), third = half / 3;
  return {half - 2 * third, third, third};
}

std::string short_name(brim_dtype dtype) {
  switch (dtype) {
    case BRIM_FLOAT32: return "f32";
    case BRIM_BFLOAT16: return "bf16";
    case BRIM_FLOAT16: return "f16";
    case BRIM_FLOAT64: return "f64";
    case BRIM_INT32: return "i32";
    case BRIM_INT64: return "i64";
    default: return "none";
  }
}

std::string name_of(const RopeSpec& x) {
  constexpr const char* kPairings[] = {"half", "interleaved", "tohalf"};
  constexpr const char* kLayouts[] = {"bhsd", "bshd", "thd"};
  constexpr const char* kViews[] = {"",        "_transposed", "_packed",
                                    "_sliced", "_expanded",   "_expandedheads",
                                    "_inner2", "_unaligned",  "_mixed"};
  constexpr const char* kTables[] = {"s", "1s", "bs", "ps", "p1s", "pbs", "axes1s", "axesbs"};
  constexpr const char* kData[] = {"", "_special", "_badpositions"};
  const auto n = [](int64_t v) { return std::to_string(v); };
  std::string name = std::string(kPairings[x.pairing]) + (x.inverse ? "_inverse_" : "_") +
                     kLayouts[x.layout] + kViews[static_cast<int>(x.view)] + (x.in_place ? "_inplace" : "");
  name +=
      "_" + short_name(x.q) + (x.k && x.k != x.q ? "k" + short_name(x.k) : "") + "t" + short_name(x.table);
  name += "_b" + n(x.b) + "s" + n(x.s) + "h" + n(x.h) + (x.k ? "k" + n(x.hk) : "nok") + "d" + n(x.d) + "r" +
          n(x.r);
  name += std::string(x.infer_rotary_dim ? "inferred" : "") + "_" + kTables[static_cast<int>(x.tables)];
  if (has_positions(x.tables)) name += short_name(x.positions);
  if (x.sections_interleaved) name += "interleaved";
  return name + (x.full_width ? "_fullwidth" : "") +
         (x.table_stride == 0  ? "_expandedtables"
          : x.table_stride > 1 ? "_stridedtables"
                               : "") +
         kData[static_cast<int>(x.data)];
}

}  // namespace

Case make_rope_case(const RopeSpec& x) {
  Case c;
  c.name = name_of(x);
  c.dtype = x.q;
  c.shape = {{"tokens", x.b * x.s}, {"heads", x.h}, {"kv_heads", x.k ? x.hk : 0}, {"head_dim", x.d}};
  c.tensors.resize(kTensors);
  constexpr const char* kNames[] = {"q", "k", "q_out", "k_out"};
  for (int i : {kQ, kK, kQOut, kKOut}) {
    CaseTensor& t = c.tensors[i];
    const bool is_output = i == kQOut || i == kKOut;
    t.name = kNames[i];
    t.dtype = is_output && x.in_place ? BRIM_DTYPE_NONE : i == kQ || i == kQOut ? x.q : x.k;
    t.role = is_output ? Role::output : x.in_place ? Role::in_place : Role::input;
    if (!is_output) t.fill = x.data == RopeData::special ? fill_special : fill_normal;
    if (t.dtype) lay_out(x, i, t);
  }
  c.tensors[kCos] = table(x, "cos", fill_cos);
  c.tensors[kSin] = table(x, "sin", fill_sin);
  if (has_positions(x.tables)) c.tensors[kPositions] = positions(x);
  c.bind = [x](std::span<const TensorView> views, const brim_run& run) {
    auto args = std::make_shared<brim_rope_args>();  // zeroed
    args->struct_size = sizeof *args;
    args->q = views[kQ];
    args->k = views[kK];
    args->q_out = views[x.in_place ? kQ : kQOut];
    args->k_out = views[x.in_place ? kK : kKOut];
    args->cos = views[kCos];
    args->sin = views[kSin];
    args->positions = views[kPositions];
    args->rotary_dim = x.infer_rotary_dim ? 0 : x.r;
    const auto sections = sections_of(x);
    for (int i = 0; i < 3; ++i) args->sections[i] = sections[i];
    args->sections_interleaved = x.sections_interleaved;
    args->layout = x.layout;
    args->pairing = x.pairing;
    args->inverse = x.inverse;
    args->run = run;
    return std::shared_ptr<void>(std::move(args));
  };
  c.expect = [x](const Values& inputs, const Oracle& oracle) { return expect_rope(x, inputs, oracle); };
  c.limit_ulp = [types = c.tensors](size_t tensor, bool fused) {
    return rope_limit_ulp(types[tensor].dtype, fused);
  };
  c.bad_data = x.data == RopeData::bad_positions;
  // In place, elements from r on need not move. The tables are small beside q and k and are not counted.
  const int64_t moved = x.in_place ? x.r : x.d;
  c.wall = x.in_place ? core::CopyPattern::in_place : core::CopyPattern::copy;
  c.bytes_read = c.bytes_written =
      x.b * x.s * moved * (x.h * core::element_size(x.q) + (x.k ? x.hk * core::element_size(x.k) : 0));
  return c;
}

void sample_tokens(Case& c, const RopeSpec& x, std::initializer_list<Range> places) {
  const int axis = x.layout == BRIM_LAYOUT_BHSD ? 2 : x.layout == BRIM_LAYOUT_BSHD ? 1 : 0;
  for (const Range& range : places) {
    const Slice heads{axis, range.begin, range.count}, rows{0, range.begin, range.count};
    c.samples.push_back({heads, heads, heads, heads, rows, rows, {}});
  }
}

void sample_batches(Case& c, std::initializer_list<Range> sequences) {
  for (const Range& range : sequences) {
    const Slice heads{0, range.begin, range.count};
    c.samples.push_back({heads, heads, heads, heads, {}, {}, {}});
  }
}

}  // namespace brim::ops
