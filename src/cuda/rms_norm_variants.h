// The closed list of the norms' kernels, and what each needs. rms_norm_plan.h picks from it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/tensor.h"

namespace brim::cuda {

enum class NormForm : uint8_t { rows, loop, bulk };

inline constexpr int kNormMostCluster = 8;  // the portable limit
// Vectors of a thread: those of its row in registers, or of its sums for dweight.
inline constexpr int kNormForwardVectors[] = {2, 4, 8};
inline constexpr int kNormBackwardVectors[] = {1, 2};
inline constexpr int kNormRingVectors[] = {2, 4}, kNormForwardRingVectors = 4;
// Backward, of rows that begin anywhere: with an add a CTA of more threads would be alone on its SM.
constexpr int norm_shifted_vectors(bool add) { return add ? 4 : 2; }
inline constexpr int kNormForwardSingles = 8, kNormBackwardSingles = 4;  // single elements
inline constexpr int kNormRingThreads = 512;  // that sum and write, at most; one warp more loads
inline constexpr int kNormMostSlots = 8;
// Of shared memory, around a row that begins anywhere, for its place and for what unaligned loads read too much.
inline constexpr int kNormBytesAround = 48;
// Of shared memory, of a CTA of the bulk form besides its slots: no less than it takes.
inline constexpr int kNormStaticBytes = 3584;
// Columns of the partials that a CTA sums: in the launch that wrote them, and in one of its own.
inline constexpr int kNormFinishLeast = 32, kNormFinishMost = 128;
inline constexpr int kNormFinishColumns = 32, kNormFinishThreads = 512;

// Every kernel that is built.
struct NormVariant {
  brim_dtype dtype, sum_dtype;
  brim_dtype weight_dtype;  // without a weight that of x
  NormForm form;
  bool add, backward;
  bool single;  // rows need not be whole vectors: of elements, or unaligned ones through shared memory
  int vectors;  // 0: any number of them

  bool operator==(const NormVariant&) const = default;
};

namespace norm_plan_detail {

template <class Add>
constexpr void each_variant(Add&& add) {
  const auto forms = [&](NormVariant v) {
    const auto take = [&](NormForm form, bool single, int vectors) {
      v.form = form;
      v.single = single;
      v.vectors = vectors;
      add(v);
    };
    for (bool backward : {false, true}) {
      v.backward = backward;
      for (int vectors : kNormForwardVectors)
        if (!backward) take(NormForm::rows, false, vectors);
      for (int vectors : kNormBackwardVectors)
        if (backward) take(NormForm::rows, false, vectors);
      take(NormForm::rows, true, backward ? kNormBackwardSingles : kNormForwardSingles);
      for (bool single : {false, true}) take(NormForm::loop, single, 0);
      for (int vectors : kNormRingVectors)
        if (backward) take(NormForm::bulk, false, vectors);
      if (backward) {
        take(NormForm::bulk, true, norm_shifted_vectors(v.add));
      } else {
        for (int vectors : {0, kNormForwardRingVectors})
          for (bool single : {false, true}) take(NormForm::bulk, single, vectors);
      }
    }
  };
  constexpr brim_dtype kFloats[] = {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT16};
  for (brim_dtype x : kFloats)
    for (brim_dtype w : kFloats) {
      if (w != x && w != BRIM_FLOAT32 && x != BRIM_FLOAT32) continue;
      forms({x, x, w, NormForm::rows, false, false, false, 0});
      forms({x, x, w, NormForm::rows, true, false, false, 0});
      if (x != BRIM_FLOAT32) forms({x, BRIM_FLOAT32, w, NormForm::rows, true, false, false, 0});
    }
}

constexpr size_t count_variants() {
  size_t n = 0;
  each_variant([&](const NormVariant&) { ++n; });
  return n;
}

}  // namespace norm_plan_detail

inline constexpr auto kNormVariants = [] {
  std::array<NormVariant, norm_plan_detail::count_variants()> list{};
  size_t n = 0;
  norm_plan_detail::each_variant([&](const NormVariant& v) { list[n++] = v; });
  return list;
}();

namespace norm_plan_detail {

inline constexpr int kKeys = 3 * 2 * 3 * 3 * 2 * 2 * 2 * 9;
// One for each variant that could be built; -1 for what could not.
constexpr int variant_key(const NormVariant& v) {
  const auto type = [](brim_dtype t) {
    return t == BRIM_FLOAT32 ? 0 : t == BRIM_BFLOAT16 ? 1 : t == BRIM_FLOAT16 ? 2 : -1;
  };
  if (type(v.dtype) < 0 || type(v.weight_dtype) < 0 || v.vectors < 0 || v.vectors > 8) return -1;
  if (v.sum_dtype != v.dtype && v.sum_dtype != BRIM_FLOAT32) return -1;
  int key = type(v.dtype) * 2 + (v.sum_dtype != v.dtype);
  key = (key * 3 + type(v.weight_dtype)) * 3 + static_cast<int>(v.form);
  key = ((key * 2 + v.add) * 2 + v.backward) * 2 + v.single;
  return key * 9 + v.vectors;
}

inline constexpr auto kIndexOfKey = [] {
  std::array<int16_t, kKeys> index{};
  index.fill(-1);
  int16_t next = 0;
  for (const NormVariant& v : kNormVariants) index[variant_key(v)] = next++;
  return index;
}();

}  // namespace norm_plan_detail

// Every call asks: a search through the list would cost the host a microsecond.
constexpr int norm_variant_index(const NormVariant& variant) {
  const int key = norm_plan_detail::variant_key(variant);
  return key < 0 ? -1 : norm_plan_detail::kIndexOfKey[key];
}

// Elements of a vector: 16 bytes of the narrower type.
constexpr int norm_elements(const NormVariant& v) {
  return v.single && v.form != NormForm::bulk
             ? 1
             : 16 / std::min(core::element_size(v.dtype), core::element_size(v.sum_dtype));
}
// A thread's registers at most, by what it holds: more tensors with an add, wider ones with a float32 residual; `elements`
// of a vector. Below these the compiler would need local memory. (Of plain arguments: nvcc takes no braces where this is
// used.)
constexpr int norm_registers(NormForm form, bool add, bool wide, bool backward, bool single, int vectors,
                             int elements) {
  const int more = !add ? 0 : wide ? 2 : 1;
  if (form == NormForm::bulk) {
    // For Blackwell the compiler needs some more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    if (!backward && vectors == 0) return 48 + (more ? 24 + 8 * more : 0) + (single ? 16 : 0);
    if (backward && single && more > 1) return 136;
#endif
    if (!backward) return vectors == 0 ? 40 + 8 * more + (single ? 16 : 0) : single ? 112 : 72;
    const int columns = vectors * elements;
    return columns <= 8 ? 64 + 8 * more : columns <= 16 ? 80 + (more ? 8 + 8 * more : 0) : single ? 128 : 120;
  }
  if (form == NormForm::loop) return backward ? 80 + 8 * more : 48;
  if (single) return backward ? 96 : 80;
  if (backward) return vectors == 1 ? 64 + 16 * more : 112 + 16 * more + (more > 1 ? 8 : 0);
  if (vectors > 4) return 128 + 48 * more;
  return vectors == 2 ? 48 + 8 * more : 80 + 16 * more;
}
constexpr int norm_registers(const NormVariant& v) {
  return norm_registers(v.form, v.add, v.sum_dtype != v.dtype, v.backward, v.single, v.vectors,
                        norm_elements(v));
}

}  // namespace brim::cuda
