// The lists of the norms' cases: what is checked, and what is checked where memory is large.
#include <algorithm>

#include "ops/all_pairs.h"
#include "ops/rms_norm_case.h"

namespace brim::ops {
namespace {

struct Entry {
  bool add, backward;
};

struct Dtypes {
  brim_dtype x, s, weight;
};
constexpr Dtypes kDtypes[] = {
    {BRIM_FLOAT32, BRIM_FLOAT32, BRIM_FLOAT32},      {BRIM_BFLOAT16, BRIM_BFLOAT16, BRIM_BFLOAT16},
    {BRIM_BFLOAT16, BRIM_BFLOAT16, BRIM_FLOAT32},    {BRIM_FLOAT16, BRIM_FLOAT16, BRIM_FLOAT16},
    {BRIM_FLOAT16, BRIM_FLOAT16, BRIM_FLOAT32},      {BRIM_FLOAT32, BRIM_FLOAT32, BRIM_BFLOAT16},
    {BRIM_FLOAT32, BRIM_FLOAT32, BRIM_FLOAT16},      {BRIM_FLOAT32, BRIM_FLOAT32, BRIM_DTYPE_NONE},
    {BRIM_BFLOAT16, BRIM_BFLOAT16, BRIM_DTYPE_NONE}, {BRIM_FLOAT64, BRIM_FLOAT64, BRIM_FLOAT64},
    {BRIM_BFLOAT16, BRIM_FLOAT32, BRIM_BFLOAT16},    {BRIM_BFLOAT16, BRIM_FLOAT32, BRIM_FLOAT32},
    {BRIM_FLOAT16, BRIM_FLOAT32, BRIM_FLOAT16},      {BRIM_FLOAT16, BRIM_FLOAT32, BRIM_DTYPE_NONE},
};
struct Scale {
  brim_rms_norm_casting casting;
  double offset;
};
constexpr Scale kScales[] = {{BRIM_CASTING_LLAMA, 0},
                             {BRIM_CASTING_GEMMA, 1},
                             {BRIM_CASTING_NONE, 0},
                             {BRIM_CASTING_LLAMA, 1},
                             {BRIM_CASTING_GEMMA, -0.25}};
constexpr double kEps[] = {1e-6, 0.0, 0.25};
const std::vector<int64_t> kOuters[] = {{7}, {}, {1}, {3, 5}, {131}, {2, 1, 4}, {2, 3, 1, 5}, {133}};
constexpr int64_t kHiddens[] = {64, 1, 7, 92, 256, 1000, 4097};
constexpr int64_t kStrides[] = {1, 2, 0};  // of weight, and of rstd where it is read
constexpr int64_t kMostElements = 40'000;  // of a tensor: keeps the whole list within seconds

// The features of a case, as all_pairs combines them; the first value of each is the plainest. What is absent, and what
// overwrites an input, are numbered as the entry has them.
enum Feature {
  kDtype,
  kScale,
  kEpsilon,
  kView,
  kOuter,
  kHidden,
  kWeightStride,
  kRstdStride,
  kAbsent,
  kAlias,
  kFeatures
};

// `value` of the ways to leave tensors out; false beyond the last.
bool leave_out(RmsNormSpec& x, int value) {
  if (!x.backward) {
    x.rstd = value == 0;
    return value < 2;
  }
  if (!x.add) {
    x.dx = value != 1;
    x.dweight = value != 2;
    return value < 3;
  }
  constexpr struct {
    bool dy, dsum, dx, dresidual, dweight;
  } kWays[] = {
      {true, true, true, true, true},   {true, true, true, false, true},   {true, true, false, true, false},
      {true, true, false, false, true}, {true, false, true, true, true},   {true, false, true, false, false},
      {false, true, true, true, true},  {false, true, false, true, false}, {true, true, true, true, false}};
  if (value >= static_cast<int>(std::size(kWays))) return false;
  x.dy = kWays[value].dy;
  x.dsum = kWays[value].dsum;
  x.dx = kWays[value].dx;
  x.dresidual = kWays[value].dresidual;
  x.dweight = kWays[value].dweight;
  return true;
}

bool overwrite(RmsNormSpec& x, int value) {
  if (!x.backward) {
    x.y_is_x = value & 1;
    x.sum_is_residual = value & 2;
    return value < (x.add ? 4 : 2);
  }
  x.dx_is_dy = value == 1 || value == 4;
  x.dx_is_dsum = value == 2;
  x.dresidual_is_dsum = value == 3 || value == 4;
  if ((x.dx_is_dy && !(x.dx && x.dy)) || (x.dresidual_is_dsum && !(x.dresidual && x.dsum)) ||
      (x.dx_is_dsum && !(x.dx && x.dsum && x.x == x.s)))
    return false;
  return value < (x.add ? 5 : 2);
}

RmsNormSpec spec_of(Entry entry, const Combination& c, bool* valid) {
  RmsNormSpec x;
  x.add = entry.add;
  x.backward = entry.backward;
  const Dtypes& types = kDtypes[c[kDtype]];
  x.x = types.x;
  x.s = types.s;
  x.weight = types.weight;
  x.casting = kScales[c[kScale]].casting;
  x.offset = kScales[c[kScale]].offset;
  x.eps = kEps[c[kEpsilon]];
  x.view = static_cast<RmsNormView>(c[kView]);
  x.outer = kOuters[c[kOuter]];
  x.hidden = kHiddens[c[kHidden]];
  x.weight_stride = kStrides[c[kWeightStride]];
  x.rstd_stride = kStrides[c[kRstdStride]];
  *valid = leave_out(x, c[kAbsent]) & overwrite(x, c[kAlias]);
  if (!x.add && x.s != x.x) *valid = false;
  if (!x.weight) {
    x.dweight = false;
    if (x.backward && !x.dx && !(x.add && x.dresidual)) *valid = false;
    if (c[kWeightStride]) *valid = false;
  }
  const bool uses_rstd = x.backward ? x.dy : x.rstd;
  if (c[kRstdStride] && (!uses_rstd || (!x.backward && x.rstd_stride == 0 && x.rows() > 1))) *valid = false;
  if (x.backward && c[kEpsilon]) *valid = false;  // which does not read it
  const bool swaps = x.view == RmsNormView::transposed || x.view == RmsNormView::mixed;
  if (swaps && x.outer.size() < 2) *valid = false;
  if (x.view == RmsNormView::column_major && x.outer.empty()) *valid = false;
  if (x.rows() * x.hidden > kMostElements) *valid = false;
  return x;
}

std::vector<RmsNormSpec> pair_specs(Entry entry) {
  int sizes[kFeatures] = {static_cast<int>(std::size(kDtypes)),
                          static_cast<int>(std::size(kScales)),
                          entry.backward ? 1 : static_cast<int>(std::size(kEps)),
                          static_cast<int>(RmsNormView::unaligned) + 1,
                          static_cast<int>(std::size(kOuters)),
                          static_cast<int>(std::size(kHiddens)),
                          static_cast<int>(std::size(kStrides)),
                          static_cast<int>(std::size(kStrides)),
                          entry.backward ? (entry.add ? 9 : 3) : 2,
                          entry.add ? (entry.backward ? 5 : 4) : 2};
  if (!entry.add) sizes[kDtype] -= 4;  // the last have a float32 residual
  const auto valid = [=](const Combination& c) {
    bool is_valid;
    spec_of(entry, c, &is_valid);
    return is_valid;
  };
  std::vector<RmsNormSpec> list;
  bool unused;
  for (const Combination& c : all_pairs(sizes, valid)) list.push_back(spec_of(entry, c, &unused));
  return list;
}

// Lengths of rows around those at which kernels change their form, of models, and beyond: FIELD-CASES 11 and 15.
std::vector<RmsNormSpec> width_specs(Entry entry) {
  std::vector<RmsNormSpec> list;
  const auto add = [&](brim_dtype x, brim_dtype s, int64_t hidden, int64_t rows) {
    RmsNormSpec spec;
    spec.add = entry.add;
    spec.backward = entry.backward;
    spec.x = spec.weight = x;
    spec.s = entry.add ? s : x;
    spec.outer = {rows};
    spec.hidden = hidden;
    list.push_back(spec);
  };
  for (int64_t hidden : {2,    3,    31,   63,   65,   80,   127,  128,  255,  257,  512,  1000, 1023,
                         1024, 1025, 1536, 2048, 2560, 2880, 3584, 4096, 4097, 5120, 7168, 8191, 8192})
    for (brim_dtype type : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16}) add(type, type, hidden, 5);
  for (int64_t hidden : {12288, 16383, 16384, 18432, 32768, 65536, 65537, 131072})
    for (brim_dtype type : {BRIM_FLOAT32, BRIM_BFLOAT16}) add(type, type, hidden, 2);
  add(BRIM_BFLOAT16, BRIM_BFLOAT16, 262144, 1);
  if (entry.add)
    for (int64_t hidden : {255, 4096, 16384}) add(BRIM_BFLOAT16, BRIM_FLOAT32, hidden, 3);
  return list;
}

// What the features above do not reach.
std::vector<RmsNormSpec> special_specs(Entry entry) {
  std::vector<RmsNormSpec> list;
  const auto add = [&](auto&& change) {
    RmsNormSpec x;
    x.add = entry.add;
    x.backward = entry.backward;
    change(x);
    list.push_back(x);
  };
  // More rows than one axis of a CUDA grid may have: FIELD-CASES 10.
  add([](RmsNormSpec& x) { x.outer = {65536, 1}, x.hidden = 4, x.x = x.s = BRIM_BFLOAT16; });
  add([](RmsNormSpec& x) { x.outer = {1, 65536}, x.hidden = 3; });
  add([](RmsNormSpec& x) { x.outer = {70000, 2}, x.hidden = 2; });
  add([](RmsNormSpec& x) { x.outer = {70000, 2}, x.hidden = 2, x.view = RmsNormView::padded; });
  // dweight of more rows, and of fewer, than there are blocks or threads: FIELD-CASES 24.
  for (int64_t rows : {1, 2, 3, 131, 132, 133, 1000})
    for (brim_dtype type : {BRIM_FLOAT32, BRIM_BFLOAT16})
      add([&](RmsNormSpec& x) { x.outer = {rows}, x.hidden = 128, x.x = x.s = type; });
  // Nothing to do, one axis at a time.
  add([](RmsNormSpec& x) { x.outer = {0}; });
  add([](RmsNormSpec& x) { x.outer = {3, 0}, x.hidden = 2520, x.x = x.s = x.weight = BRIM_BFLOAT16; });
  add([](RmsNormSpec& x) { x.outer = {3, 5}, x.hidden = 0; });
  add([](RmsNormSpec& x) { x.outer = {}, x.hidden = 0; });
  add([](RmsNormSpec& x) { x.outer = {0}, x.hidden = 0; });
  // One tensor at a time one element past its alignment: FIELD-CASES 16.
  for (int tensor = 0; tensor < rms_norm_tensor::kTensors; ++tensor)
    for (brim_dtype type : {BRIM_FLOAT32, BRIM_BFLOAT16}) {
      add([&](RmsNormSpec& x) {
        x.x = x.s = x.weight = type;
        x.hidden = 256;
        x.unaligned = tensor;
      });
      if (!make_rms_norm_case(list.back()).tensors[static_cast<size_t>(tensor)].dtype) list.pop_back();
    }
  // Numbers that are not ordinary, in 7 x 7 x 7 kinds of rows; a row of 300 elements needs more than one vector.
  for (brim_dtype type : {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16, BRIM_FLOAT64})
    for (brim_rms_norm_casting casting : {BRIM_CASTING_LLAMA, BRIM_CASTING_GEMMA})
      add([&](RmsNormSpec& x) {
        x.x = x.s = x.weight = type;
        x.casting = casting;
        x.outer = {7, 7, 7};
        x.hidden = casting == BRIM_CASTING_LLAMA ? 24 : 300;
        x.data = RmsNormData::special;
      });
  // Rows of zeros: rstd is 1/sqrt(eps), and infinite without eps.
  for (double eps : {1e-5, 0.0})
    for (brim_dtype type : {BRIM_FLOAT32, BRIM_BFLOAT16})
      add([&](RmsNormSpec& x) {
        x.x = x.s = x.weight = type;
        x.eps = eps;
        x.data = RmsNormData::zeros;
        x.outer = {};
      });
  // A sum of 16-bit numbers stalls at 256 or 2048: FIELD-CASES 35.
  for (brim_dtype type : {BRIM_BFLOAT16, BRIM_FLOAT16, BRIM_FLOAT32})
    add([&](RmsNormSpec& x) {
      x.x = x.s = x.weight = type;
      x.outer = {32832};
      x.hidden = 8;
      x.data = RmsNormData::ones;
    });
  return list;
}

std::vector<Case> check_list(Entry entry) {
  std::vector<Case> cases;
  for (const auto& specs : {pair_specs(entry), width_specs(entry), special_specs(entry)})
    for (const RmsNormSpec& x : specs) {
      Case c = make_rms_norm_case(x);
      const auto same = [&](const Case& other) { return other.name == c.name; };
      if (std::none_of(cases.begin(), cases.end(), same)) cases.push_back(std::move(c));
    }
  return cases;
}

// Beyond 2^31 elements: FIELD-CASES 06 and 07. Element 2^31 stands in row 2^23 and in row 524288.
std::vector<Case> large_list(Entry entry) {
  std::vector<Case> cases;
  const auto add = [&](RmsNormSpec x) {
    x.add = entry.add;
    x.backward = entry.backward;
    x.s = x.x;
    cases.push_back(make_rms_norm_case(x));
    sample(cases.back(), x, {x.rows() / 2, (int64_t{1} << 31) / x.hidden});
  };
  RmsNormSpec tall;
  tall.x = BRIM_BFLOAT16;
  tall.outer = {(1 << 23) + 16};
  tall.hidden = 256;
  tall.dresidual = false;
  RmsNormSpec wide = tall;
  wide.x = wide.weight = BRIM_FLOAT16;
  wide.outer = {524288 + 17};
  wide.hidden = 4096;
  wide.dresidual = true;
  add(tall);
  add(wide);
  if (entry.backward) {
    tall.data = RmsNormData::ones;
    add(tall);
  }
  return cases;
}

template <bool kAdd, bool kBackward>
constexpr CaseList kLists{[] {
                            return check_list({kAdd, kBackward});
                          },
                          [] {
                            return large_list({kAdd, kBackward});
                          },
                          [](const BenchRequest& r) { return rms_norm_bench_cases(r, kAdd, kBackward); }};

}  // namespace

const CaseList& case_list_rms_norm_forward() { return kLists<false, false>; }
const CaseList& case_list_rms_norm_backward() { return kLists<false, true>; }
const CaseList& case_list_add_rms_norm_forward() { return kLists<true, false>; }
const CaseList& case_list_add_rms_norm_backward() { return kLists<true, true>; }

}  // namespace brim::ops
