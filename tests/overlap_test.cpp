// core/overlap.h against brute force: every byte of every element, on small strided views, and on the layouts
// that callers use.
#include "core/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <random>
#include <string>

#include "core/tensor.h"

namespace brim::core {
namespace {

constexpr int kBytes = 4096;
alignas(8) char memory[kBytes];

// Calls visit(byte offset of the element's first byte) for every element; an odometer over the axes.
template <class Visit>
void each_element(const TensorView& t, Visit&& visit) {
  if (element_count(t) == 0) return;
  int64_t index[BRIM_MAX_RANK] = {};
  for (;;) {
    int64_t offset = 0;
    for (int i = 0; i < t.rank; ++i) offset += index[i] * (t.shape[i] > 1 ? t.strides[i] : 0);
    visit(static_cast<char*>(t.data) - memory + offset * element_size(t.dtype));
    int axis = t.rank - 1;
    while (axis >= 0 && ++index[axis] == t.shape[axis]) index[axis--] = 0;
    if (axis < 0) return;
  }
}

std::bitset<kBytes> bytes_of(const TensorView& t) {
  std::bitset<kBytes> used;
  each_element(t, [&](int64_t at) {
    for (int i = 0; i < element_size(t.dtype); ++i) used.set(at + i);
  });
  return used;
}

bool repeats_an_element(const TensorView& t) {
  std::bitset<kBytes> used;
  bool repeats = false;
  each_element(t, [&](int64_t at) {
    repeats |= used.test(at);
    used.set(at);
  });
  return repeats;
}

// A view that stays within `memory`, of any kind: empty axes, size-1 axes with junk strides, stride 0,
// colliding strides.
TensorView random_view(std::mt19937& random) {
  const auto pick = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  constexpr brim_dtype kTypes[] = {BRIM_FLOAT32, BRIM_BFLOAT16, BRIM_FLOAT64};
  TensorView t{};
  t.dtype = kTypes[pick(0, 2)];
  t.rank = pick(1, 5);
  for (int i = 0; i < t.rank; ++i) {
    t.shape[i] = pick(0, 40) == 0 ? 0 : pick(1, 4);
    t.strides[i] = t.shape[i] == 1 ? pick(-1000, 1000) : pick(0, 2) ? pick(0, 12) : pick(0, 40);
  }
  const int room = kBytes / element_size(t.dtype) - static_cast<int>(span_elements(t));
  t.data = memory + pick(0, std::min(room, 150)) * element_size(t.dtype);
  return t;
}

std::string text(const TensorView& t) {
  return std::string(dtype_name(t.dtype)) + shape_text(t).text + " strides " + strides_text(t).text +
         " at byte " + std::to_string(static_cast<char*>(t.data) - memory);
}

TEST(Overlap, AgreesWithBruteForce) {
  std::mt19937 random(11);
  int meeting = 0, apart = 0, boxes_meet_but_elements_do_not = 0;
  for (int i = 0; i < 60000; ++i) {
    const TensorView a = random_view(random), b = random_view(random);
    const auto a_bytes = bytes_of(a), b_bytes = bytes_of(b);
    const bool meet = (a_bytes & b_bytes).any();
    const Overlap answer = overlap(a, b);
    ASSERT_EQ(answer, meet ? Overlap::some : Overlap::none) << text(a) << " and " << text(b);
    ASSERT_EQ(overlap(b, a), answer) << text(a) << " and " << text(b);
    meet ? ++meeting : ++apart;
    const auto begin = [](const TensorView& t) { return static_cast<char*>(t.data) - memory; };
    const auto end = [&](const TensorView& t) { return begin(t) + span_elements(t) * element_size(t.dtype); };
    if (!meet && a_bytes.any() && b_bytes.any() && begin(a) < end(b) && begin(b) < end(a))
      ++boxes_meet_but_elements_do_not;
  }
  // The three kinds all came up; without the last, comparing bounding boxes would have passed.
  EXPECT_GT(meeting, 5000);
  EXPECT_GT(apart, 5000);
  EXPECT_GT(boxes_meet_but_elements_do_not, 1000);
}

TEST(Overlap, DistinctIsNeverClaimedWrongly) {
  std::mt19937 random(12);
  int distinct = 0;
  for (int i = 0; i < 60000; ++i) {
    const TensorView t = random_view(random);
    if (!elements_distinct(t)) continue;
    ++distinct;
    ASSERT_FALSE(repeats_an_element(t)) << text(t);
  }
  EXPECT_GT(distinct, 5000);
}

// Every permutation, slice and step of a dense buffer is distinct: what outputs are made of.
TEST(Overlap, DenseLayoutsAreDistinct) {
  std::mt19937 random(13);
  for (int i = 0; i < 20000; ++i) {
    TensorView t{};
    t.dtype = BRIM_FLOAT32;
    t.rank = 1 + static_cast<int>(random() % 5);
    int order[BRIM_MAX_RANK] = {0, 1, 2, 3, 4};
    std::shuffle(order, order + t.rank, random);
    int64_t stride = 1 + static_cast<int64_t>(random() % 2);
    for (int k = 0; k < t.rank; ++k) {
      const int64_t whole = 1 + static_cast<int64_t>(random() % 5);
      t.shape[order[k]] = 1 + static_cast<int64_t>(random() % whole);  // a slice of `whole`
      t.strides[order[k]] = stride;
      stride *= whole;
    }
    ASSERT_TRUE(elements_distinct(t)) << shape_text(t).text << " strides " << strides_text(t).text;
  }
}

TEST(Overlap, ExpandedViewsRepeatElements) {
  EXPECT_FALSE(elements_distinct(view(memory, BRIM_FLOAT32, {4, 8}, {0, 1})));
  EXPECT_FALSE(elements_distinct(view(memory, BRIM_FLOAT32, {4, 8}, {7, 1})));
  EXPECT_TRUE(elements_distinct(view(memory, BRIM_FLOAT32, {4, 8}, {8, 1})));
  EXPECT_TRUE(elements_distinct(view(memory, BRIM_FLOAT32, {1, 8}, {0, 1})));
  EXPECT_TRUE(elements_distinct(view(memory, BRIM_FLOAT32, {0, 8}, {0, 0})));
}

// The layouts of attention code at full size: decided, not given up on.
TEST(Overlap, SlicesOfAPackedBufferAreApart) {
  constexpr int64_t b = 4, s = 8192, d = 128, heads = 32, kv = 8, width = (heads + 2 * kv) * d;
  char* base = reinterpret_cast<char*>(uintptr_t{1} << 40);  // never touched
  const auto slice = [&](int64_t first_head, int64_t h) {
    return view(base + first_head * d * 2, BRIM_BFLOAT16, {b, h, s, d}, {s * width, d, width, 1});
  };
  const TensorView q = slice(0, heads), k = slice(heads, kv), v = slice(heads + kv, kv);
  EXPECT_EQ(overlap(q, k), Overlap::none);
  EXPECT_EQ(overlap(k, v), Overlap::none);
  EXPECT_EQ(overlap(q, v), Overlap::none);
  EXPECT_EQ(overlap(q, q), Overlap::some);
  EXPECT_EQ(overlap(slice(0, heads + 1), k), Overlap::some);
  // Even and odd elements of one buffer, as interleaved halves.
  const TensorView even = view(base, BRIM_FLOAT32, {b, s, 64}, {s * 128, 128, 2});
  const TensorView odd = view(base + 4, BRIM_FLOAT32, {b, s, 64}, {s * 128, 128, 2});
  EXPECT_EQ(overlap(even, odd), Overlap::none);
  EXPECT_EQ(overlap(even, even), Overlap::some);
}

}  // namespace
}  // namespace brim::core
