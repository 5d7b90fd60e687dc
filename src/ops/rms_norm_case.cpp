#include "ops/rms_norm_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/tensor.h"

namespace brim::ops {
namespace {

using namespace rms_norm_tensor;

constexpr int64_t kSlice = 8;  // columns before, and after, what `sliced` rows keep

// Strides of rows that stand in memory in this order of their axes, outermost first, each axis `pad` longer than it
// shows.
std::vector<int64_t> strides_in_order(const std::vector<int64_t>& shape, const std::vector<size_t>& order,
                                      int64_t pad) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0; stride *= shape[order[i]] + pad) strides[order[i]] = stride;
  return strides;
}

void lay_out(const RmsNormSpec& x, bool is_input, CaseTensor& t) {
  t.shape = x.outer;
  t.shape.push_back(x.hidden);
  std::vector<size_t> order(t.shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  int64_t pad = 0, step = 1;
  switch (x.view) {
    case RmsNormView::contiguous: break;
    case RmsNormView::mixed:
      if (is_input) std::swap(order[0], order[1]);
      break;
    case RmsNormView::transposed: std::swap(order[0], order[1]); break;
    case RmsNormView::padded: pad = 3; break;
    case RmsNormView::inner_strided: step = 2; break;
    case RmsNormView::inner_inputs: step = is_input ? 2 : 1; break;
    case RmsNormView::inner_outputs: step = is_input ? 1 : 2; break;
    case RmsNormView::column_major: std::rotate(order.begin(), order.end() - 1, order.end()); break;
    case RmsNormView::unaligned: t.offset = 1; break;
    case RmsNormView::sliced: {
      std::vector<int64_t> wider = t.shape;
      wider.back() += 2 * kSlice;
      t.strides = strides_in_order(wider, order, 0);
      t.offset = kSlice;
      return;
    }
    case RmsNormView::expanded:
    case RmsNormView::expanded_rows:
      if (!is_input) break;
      t.strides.assign(t.shape.size(), 0);
      t.strides.back() = x.view == RmsNormView::expanded_rows;
      return;
  }
  t.strides = strides_in_order(t.shape, order, pad);
  for (int64_t& s : t.strides) s *= step;
}

void fill_ones(std::span<double> values, Random&) { std::fill(values.begin(), values.end(), 1.0); }
void fill_zeros(std::span<double> values, Random&) { std::fill(values.begin(), values.end(), 0.0); }
void fill_positive(std::span<double> values, Random& random) {
  fill_normal(values, random);
  for (double& v : values) v = 0.125 + std::abs(v);
}

// Seven kinds of rows in turn, each kind for `repeat` rows, so that those of several tensors meet in all combinations.
Fill fill_special(int64_t hidden, int64_t repeat) {
  return [=](std::span<double> values, Random& random) {
    fill_normal(values, random);
    // Subnormal numbers of every type, yet none that a factor near 1 takes to 0, which an infinity would make a NaN.
    const double tiny[] = {0x1p-132, -0x1.8p-22, 0x1p-126, -0x1p-14};
    for (int64_t row = 0; row < static_cast<int64_t>(values.size()) / hidden; ++row) {
      const auto columns = values.subspan(static_cast<size_t>(row * hidden), static_cast<size_t>(hidden));
      const size_t at = random() % columns.size();
      switch (row / repeat % 7) {
        case 1: columns[at] = INFINITY; break;
        case 2: columns[at] = -INFINITY; break;
        case 3: columns[at] = NAN; break;
        case 4:
          for (double& v : columns) v = random() % 2 ? 0.0 : -0.0;
          break;
        case 5:
          for (double& v : columns) v = tiny[random() % std::size(tiny)];
          break;
        case 6:
          for (double& v : columns) v = random() % 2 ? 60000 : -60000;
          break;
        default: break;
      }
    }
  };
}

Fill fill_of(const RmsNormSpec& x, int tensor) {
  const bool normalised = tensor == kX || tensor == kSum;
  if (x.data == RmsNormData::ones) return fill_ones;
  if (tensor == kRstd) return fill_positive;
  if (x.data == RmsNormData::zeros && (normalised || tensor == kResidual)) return fill_zeros;
  if (x.data == RmsNormData::special && tensor != kWeight)
    return fill_special(x.hidden, normalised ? 1 : tensor == kDsum ? 49 : 7);
  return fill_normal;
}

std::string short_name(brim_dtype dtype) {
  switch (dtype) {
    case BRIM_FLOAT32: return "f32";
    case BRIM_BFLOAT16: return "bf16";
    case BRIM_FLOAT16: return "f16";
    case BRIM_FLOAT64: return "f64";
    default: return "none";
  }
}

std::string number_name(double v) {
  std::string name = std::to_string(static_cast<int64_t>(std::lround(v * 1e6)));  // in millionths
  if (v < 0) name[0] = 'm';
  return name;
}

constexpr const char* kNames[] = {"x",    "residual", "sum", "weight",    "rstd",   "dy",
                                  "dsum", "y",        "dx",  "dresidual", "dweight"};

std::string name_of(const RmsNormSpec& x) {
  constexpr const char* kCastings[] = {"llama", "gemma", "none"};
  constexpr const char* kViews[] = {
      "",        "_transposed",  "_mixed",        "_padded",      "_sliced",   "_expanded", "_expandedrows",
      "_inner2", "_innerinputs", "_inneroutputs", "_columnmajor", "_unaligned"};
  constexpr const char* kData[] = {"", "_special", "_zeros", "_ones"};
  std::string name = kCastings[x.casting];
  name += "_" + short_name(x.x) + (x.s != x.x ? "s" + short_name(x.s) : "") +
          (x.weight ? "w" + short_name(x.weight) : "now") + "_";
  for (int64_t n : x.outer) name += std::to_string(n) + "x";
  name += std::to_string(x.hidden) + kViews[static_cast<int>(x.view)];
  if (x.unaligned >= 0) name += std::string("_unaligned") + kNames[x.unaligned];
  if (x.offset != 0) name += "_offset" + number_name(x.offset);
  if (x.eps != 1e-6) name += "_eps" + number_name(x.eps);
  if (x.weight_stride != 1) name += "_wstride" + std::to_string(x.weight_stride);
  if (x.rstd_stride != 1) name += "_rstdstride" + std::to_string(x.rstd_stride);
  const auto flag = [&](bool on, const char* text) { name += on ? text : ""; };
  flag(!x.backward && !x.rstd, "_norstd");
  flag(x.y_is_x, "_yisx");
  flag(x.sum_is_residual, "_sumisresidual");
  flag(x.backward && !x.dy, "_nody");
  flag(x.backward && x.add && !x.dsum, "_nodsum");
  flag(x.backward && !x.dx, "_nodx");
  flag(x.backward && x.add && !x.dresidual, "_nodresidual");
  flag(x.backward && !x.dweight, "_nodweight");
  flag(x.dx_is_dy, "_dxisdy");
  flag(x.dx_is_dsum, "_dxisdsum");
  flag(x.dresidual_is_dsum, "_dresidualisdsum");
  return name + kData[static_cast<int>(x.data)];
}

// Type of a tensor, or none when this entry has no use for it or it is absent.
brim_dtype type_of(const RmsNormSpec& x, int tensor) {
  const bool forward = !x.backward;
  const auto given = [](bool is, brim_dtype type) { return is ? type : brim_dtype{BRIM_DTYPE_NONE}; };
  switch (tensor) {
    case kX: return given(forward || !x.add, x.x);
    case kResidual: return given(forward && x.add, x.s);
    case kSum: return given(x.add, x.s);
    case kWeight: return x.weight;
    case kRstd: return given(forward ? x.rstd : x.dy, x.x == BRIM_FLOAT64 ? BRIM_FLOAT64 : BRIM_FLOAT32);
    case kDy: return given(x.backward && x.dy, x.x);
    case kDsum: return given(x.backward && x.add && x.dsum, x.s);
    case kY: return given(forward, x.x);
    case kDx: return given(x.backward && x.dx, x.x);
    case kDresidual: return given(x.backward && x.add && x.dresidual, x.s);
    default: return given(x.backward && x.dweight, x.weight);
  }
}

bool is_output(const RmsNormSpec& x, int tensor) {
  return tensor >= kY || (!x.backward && (tensor == kSum || tensor == kRstd));
}

}  // namespace

int64_t RmsNormSpec::rows() const {
  return std::accumulate(outer.begin(), outer.end(), int64_t{1}, std::multiplies<>());
}

bool RmsNormSpec::rounds_xhat() const {
  return casting == BRIM_CASTING_LLAMA && weight && core::element_size(add ? s : x) == 2;
}

int rms_norm_place(const RmsNormSpec& x, int output) {
  if (output == kY && x.y_is_x) return kX;
  if (output == kSum && x.sum_is_residual) return kResidual;
  if (output == kDx && x.dx_is_dy) return kDy;
  if ((output == kDx && x.dx_is_dsum) || (output == kDresidual && x.dresidual_is_dsum)) return kDsum;
  return output;
}

Case make_rms_norm_case(const RmsNormSpec& x) {
  Case c;
  c.name = name_of(x);
  c.dtype = x.x;
  c.shape = {{"rows", x.rows()}, {"hidden", x.hidden}};
  c.tensors.resize(kTensors);
  for (int i = 0; i < kTensors; ++i) {
    CaseTensor& t = c.tensors[i];
    t.name = kNames[i];
    t.dtype = rms_norm_place(x, i) == i ? type_of(x, i) : brim_dtype{BRIM_DTYPE_NONE};
    if (!t.dtype) continue;
    t.role = is_output(x, i) ? Role::output : Role::input;
    for (int out = 0; out < kTensors; ++out)
      if (out != i && type_of(x, out) && rms_norm_place(x, out) == i) t.role = Role::in_place;
    if (t.role != Role::output) t.fill = fill_of(x, i);
    if (i == kWeight || i == kDweight || i == kRstd) {
      const int64_t stride = i == kRstd ? x.rstd_stride : x.weight_stride;
      t.shape = {i == kRstd ? x.rows() : x.hidden};
      t.strides = {t.role == Role::output ? std::max<int64_t>(stride, 1) : stride};
      t.offset = x.view == RmsNormView::unaligned;
    } else {
      lay_out(x, t.role == Role::input, t);
    }
    if (i == x.unaligned) t.offset = 1;
  }
  c.bind = [x](std::span<const TensorView> views, const brim_run& run) {
    auto args = std::make_shared<brim_rms_norm_args>();  // zeroed
    args->struct_size = sizeof *args;
    const auto at = [&](int tensor) {
      return type_of(x, tensor) ? views[rms_norm_place(x, tensor)] : TensorView{};
    };
    args->x = at(kX);
    args->residual = at(kResidual);
    args->sum = at(kSum);
    args->weight = at(kWeight);
    args->rstd = at(kRstd);
    args->dy = at(kDy);
    args->dsum = at(kDsum);
    args->y = at(kY);
    args->dx = at(kDx);
    args->dresidual = at(kDresidual);
    args->dweight = at(kDweight);
    args->eps = x.eps;
    args->offset = x.offset;
    args->casting = x.casting;
    args->run = run;
    return std::shared_ptr<void>(std::move(args));
  };
  c.set_workspace = [](void* args, void* workspace, uint64_t bytes) {
    auto& norm = *static_cast<brim_rms_norm_args*>(args);
    norm.workspace = workspace;
    norm.workspace_bytes = bytes;
  };
  c.expect = [x](const Values& inputs, const Oracle& oracle) { return expect_rms_norm(x, inputs, oracle); };
  c.limit_ulp = [x](size_t tensor, bool) { return rms_norm_limit_ulp(x, static_cast<int>(tensor)); };

  // Rows only: weight, dweight and rstd are small beside them and are not counted.
  int tensors_read = 0;
  for (int i = 0; i < kTensors; ++i) {
    if (!type_of(x, i) || i == kWeight || i == kDweight || i == kRstd) continue;
    const int64_t bytes = x.rows() * x.hidden * core::element_size(type_of(x, i));
    (is_output(x, i) ? c.bytes_written : c.bytes_read) += bytes;
    tensors_read += !is_output(x, i);
  }
  // As many bytes in the pattern that comes closest: two or three tensors read for one that is written, or as many.
  c.wall = x.backward && tensors_read > 1 ? core::CopyPattern::two_reads_one_write
           : c.in_place()                 ? core::CopyPattern::in_place
                                          : core::CopyPattern::copy;
  return c;
}

void sample(Case& c, const RmsNormSpec& x, std::initializer_list<int64_t> rows_between) {
  const int64_t rows = x.rows(), count = std::min<int64_t>(rows, 8);
  std::vector<int64_t> places{0, rows - count};
  for (int64_t row : rows_between) places.push_back(std::clamp<int64_t>(row - count / 2, 0, rows - count));
  for (int64_t begin : places) {
    Sample part(kTensors, Slice{0, begin, count});
    part[kWeight] = part[kDweight] = {};
    c.samples.push_back(part);
  }
  if (!x.backward || !x.dweight) return;
  const int64_t width = std::min<int64_t>(x.hidden, 2);
  for (int64_t begin : {int64_t{0}, (x.hidden - width) / 2, x.hidden - width}) {
    Sample part(kTensors, Slice{1, begin, width});
    part[kWeight].axis = part[kDweight].axis = 0;
    part[kRstd] = {};
    c.samples.push_back(part);
  }
}

}  // namespace brim::ops
