// The shapes that the norms are timed at, and that their plans are asked for.
#include <algorithm>
#include <stdexcept>

#include "core/tensor.h"
#include "ops/rms_norm_case.h"

namespace brim::ops {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kHiddens[] = {1024, 2048, 3584, 4096, 5120, 7168, 8192, 16384};  // of common models
constexpr int64_t kHeads[] = {64, 128, 256};  // head dims of models that normalise q and k
constexpr int64_t kHeadsOfAToken = 32;

struct Shape {
  int64_t hidden, rows;
  bool heads = false;
  bool every_layout = false;
};

// Without a wish: sizes from what a cache holds to what streams, heads, a row beyond what a block holds, an odd one.
std::vector<Shape> own_shapes(brim_dtype dtype, bool large) {
  std::vector<Shape> shapes;
  const std::vector<int64_t> sizes =
      large ? std::vector<int64_t>{4 * kMiB, 64 * kMiB, 512 * kMiB} : std::vector<int64_t>{32 * kMiB};
  for (int64_t hidden : kHiddens)
    for (int64_t bytes : sizes)
      shapes.push_back({hidden, bytes / (hidden * core::element_size(dtype)), false,
                        hidden == 4096 && bytes >= 32 * kMiB && bytes <= 64 * kMiB});
  shapes.push_back({4097, large ? 8192 : 4096});
  shapes.push_back({65536, large ? 2048 : 256});
  for (int64_t hidden : kHeads)
    for (int64_t rows : {131072, 262144})
      if (large || rows == 131072) shapes.push_back({hidden, rows, true});
  return shapes;
}

std::vector<Shape> shapes_of(const BenchRequest& request) {
  if (!request.model && request.tokens.empty()) return own_shapes(request.dtype, request.large);
  std::vector<Shape> of_a_token;
  if (const ModelShape* m = request.model) {
    of_a_token = {{m->hidden, 1}, {m->head_dim, m->heads, true}};
  } else {
    for (int64_t hidden : kHiddens) of_a_token.push_back({hidden, 1});
    for (int64_t hidden : kHeads) of_a_token.push_back({hidden, kHeadsOfAToken, true});
  }
  std::vector<Shape> shapes;
  for (const Shape& one : of_a_token)
    for (int64_t tokens :
         request.tokens.empty() ? std::vector<int64_t>{request.large ? 8192 : 4096} : request.tokens)
      shapes.push_back({one.hidden, one.rows * tokens, one.heads});
  return shapes;
}

void set_layout(RmsNormSpec& x, const std::string& layout) {
  x.view = RmsNormView::contiguous;
  x.weight = x.x;
  if (layout == "sliced")
    x.view = RmsNormView::sliced;
  else if (layout == "unaligned")
    x.view = RmsNormView::unaligned;
  else if (layout == "weight32")  // contiguous, with a float32 weight
    x.weight = x.x == BRIM_FLOAT64 ? x.x : BRIM_FLOAT32;
  else if (layout != "contiguous")
    throw std::invalid_argument("unknown layout '" + layout +
                                "'; known: contiguous, sliced, unaligned, weight32");
}

}  // namespace

// Each shape in each layout, out of place, with everything that training asks for: forward saves rstd, backward gives
// dweight. Weights have the type of x, as models make them.
std::vector<Case> rms_norm_bench_cases(const BenchRequest& request, bool add, bool backward) {
  RmsNormSpec x{.add = add, .backward = backward, .x = request.dtype, .s = request.dtype};
  x.dresidual = false;  // of one type with dx, which is enough
  std::vector<Case> cases;
  for (const Shape& shape : shapes_of(request)) {
    if (add && shape.heads) continue;  // no model adds to heads
    std::vector<std::string> layouts = request.layouts;
    if (layouts.empty()) layouts = {"contiguous"};
    if (request.layouts.empty() && shape.every_layout) {
      layouts.push_back("unaligned");
      if (core::element_size(x.x) == 2) layouts.push_back("weight32");
    }
    for (const std::string& layout : layouts) {
      set_layout(x, layout);
      x.outer = {shape.rows};
      x.hidden = shape.hidden;
      cases.push_back(make_rms_norm_case(x));
      cases.back().layout = layout;
      sample(cases.back(), x, {shape.rows / 2});
    }
  }
  return cases;
}

}  // namespace brim::ops
