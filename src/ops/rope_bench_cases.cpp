// The shapes that RoPE is timed at, and that its plans are asked for.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "ops/rope_case.h"

namespace brim::ops {
namespace {

// Query heads, key heads and head dim of common models, and of some that vector widths do not like.
constexpr std::array<int64_t, 3> kBenchShapes[] = {{32, 8, 128}, {32, 8, 64},  {128, 128, 56}, {32, 32, 80},
                                                   {32, 32, 96}, {32, 8, 192}, {16, 8, 256},   {73, 213, 92}};

void set_layout(RopeSpec& x, const std::string& layout) {
  x.view = RopeView::contiguous;
  if (layout == "bshd")
    x.layout = BRIM_LAYOUT_BSHD;
  else if (layout == "bhsd")
    x.layout = BRIM_LAYOUT_BHSD;
  else if (layout == "thd")
    x.layout = BRIM_LAYOUT_THD;
  else if (layout == "packed")
    x.view = RopeView::packed, x.layout = BRIM_LAYOUT_BSHD;
  else if (layout == "transposed")
    x.view = RopeView::transposed, x.layout = BRIM_LAYOUT_BHSD;
  else
    throw std::invalid_argument("unknown layout '" + layout +
                                "'; known: bshd, bhsd, thd, packed, transposed");
}

}  // namespace

// Each shape in each layout at each number of tokens, out of place and in place. Tables have the type of q,
// as models make them.
std::vector<Case> rope_bench_cases(const BenchRequest& request) {
  RopeSpec x;
  x.q = x.k = x.table = request.dtype;
  x.b = 1;

  struct Shape {
    int64_t h, hk, d, r;
    brim_rope_pairing pairing;
  };
  std::vector<Shape> shapes;
  if (const ModelShape* m = request.model)
    shapes = {{m->heads, m->kv_heads, m->head_dim, m->rotary_dim, m->pairing}};
  else
    for (const auto& [h, hk, d] : kBenchShapes) shapes.push_back({h, hk, d, d, BRIM_PAIRING_HALF});

  std::vector<int64_t> tokens = request.tokens;
  if (tokens.empty()) tokens = request.large ? std::vector<int64_t>{8192} : std::vector<int64_t>{4096};
  const std::vector<std::string> layouts =
      request.layouts.empty() ? std::vector<std::string>{"bshd"} : request.layouts;
  std::vector<Case> cases;
  for (const Shape& shape : shapes)
    for (const std::string& layout : layouts)
      for (int64_t count : tokens)
        for (bool in_place : {false, true}) {
          if (in_place && shape.pairing == BRIM_PAIRING_TO_HALF) continue;
          set_layout(x, layout);
          x.s = count;
          x.h = shape.h;
          x.hk = shape.hk;
          x.d = shape.d;
          x.r = shape.r;
          x.pairing = shape.pairing;
          x.full_width = x.pairing == BRIM_PAIRING_HALF;  // what rope_tables makes
          x.in_place = in_place;
          cases.push_back(make_rope_case(x));
          cases.back().layout = layout;
          const int64_t part = std::min<int64_t>(count, 4);
          sample_tokens(cases.back(), x,
                        {{0, part}, {count / 2, std::min(part, count - count / 2)}, {count - part, part}});
        }
  return cases;
}

}  // namespace brim::ops
