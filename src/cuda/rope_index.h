// Which element a thread of RoPE's plain kernel works on: run by the kernel and, without a GPU, by the plan
// sweep.
//
// A thread owns a column: two vectors of N elements of every head it visits. A pair column holds the first
// and the second elements of N pairs; a pass-through column holds 2N of the elements r..d-1. A CTA covers a
// tile of tokens x heads x columns; its threads are (column, lane, lane), see RopeLaunch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/rope.h"

namespace brim::cuda {

using ops::PairOrder;

inline constexpr int kMostThreadsZ = 64;  // of blockDim.z

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One kernel: what is fixed when it is compiled.
struct RopeVariant {
  brim_dtype dtype;
  int vector_bytes;  // of each access to q and k
  PairOrder in, out;

  bool operator==(const RopeVariant&) const = default;
};

// One kernel launch over `heads` heads: q's first, then k's.
struct RopeLaunch {
  RopeVariant variant;
  int64_t tokens, seq;  // token = batch * seq + place in the sequence
  int64_t heads, q_heads;
  int64_t head_dim, rotary_dim;
  int64_t columns, pair_columns;
  int columns_per_tile;         // threadIdx.x
  int head_lanes, token_lanes;  // threadIdx.y, .z; with tokens_first .z, .y
  bool tokens_first;   // neighbouring threads take neighbouring tokens of a head, not heads of a token
  int heads_per_tile;  // a tile is heads_per_tile heads of token_lanes tokens
  int64_t column_tiles, head_tiles, token_tiles;
  bool vector_tables;  // rows of cos and sin are read as vectors

  bool operator==(const RopeLaunch&) const = default;
};

constexpr int64_t rope_blocks(const RopeLaunch& l) { return l.column_tiles * l.head_tiles * l.token_tiles; }
constexpr int rope_threads(const RopeLaunch& l) { return l.columns_per_tile * l.head_lanes * l.token_lanes; }

// Where a tile starts, how many heads it has and how many of these, the first ones, are q's.
struct RopeTile {
  int64_t token, head, column;
  int heads, q_heads;
};

// Tiles that follow each other run side by side. Lanes across heads: the tiles of one token, which share rows
// of cos and sin. Lanes across tokens: neighbouring runs of the same heads, which share DRAM pages and the
// lines where runs meet (d = 56 bf16: 0.85 without this, 0.90 with it).
constexpr RopeTile rope_tile(const RopeLaunch& l, uint32_t block) {
  const uint32_t column_tiles = static_cast<uint32_t>(l.column_tiles);
  const uint32_t rest = block / column_tiles;
  const uint32_t column_tile = block - rest * column_tiles;
  const uint32_t inner_tiles = static_cast<uint32_t>(l.tokens_first ? l.token_tiles : l.head_tiles);
  const uint32_t outer = rest / inner_tiles, inner = rest - outer * inner_tiles;
  const uint32_t token_tile = l.tokens_first ? inner : outer, head_tile = l.tokens_first ? outer : inner;
  RopeTile t{};
  t.token = static_cast<int64_t>(token_tile) * l.token_lanes;
  t.head = static_cast<int64_t>(head_tile) * l.heads_per_tile;
  t.column = static_cast<int64_t>(column_tile) * l.columns_per_tile;
  t.heads = static_cast<int>(std::min<int64_t>(l.heads - t.head, l.heads_per_tile));
  t.q_heads = static_cast<int>(std::clamp<int64_t>(l.q_heads - t.head, 0, t.heads));
  return t;
}

struct RopeToken {
  int64_t batch, place;
};
constexpr RopeToken rope_token(const RopeLaunch& l, int64_t token) {
  int64_t batch;
  if (l.tokens <= UINT32_MAX)  // a 64-bit division costs several times a 32-bit one
    batch = static_cast<uint32_t>(token) / static_cast<uint32_t>(l.seq);
  else
    batch = token / l.seq;
  return {batch, token - batch * l.seq};
}

// First elements of a column's two vectors in a head, and the columns of cos and sin for its pairs: `table`
// for the first N/2 of them, `table_second` for the others (N = 1: only `table`).
template <class Int>
struct RopeColumnOf {
  Int in_first, in_second, out_first, out_second;
  Int table, table_second;
  bool rotates;
};
using RopeColumn = RopeColumnOf<int64_t>;

// The N pairs of two vectors of interleaved elements, read and written alike, need not be one run: taking
// them half a row apart keeps the accesses of neighbouring threads next to each other.
constexpr bool rope_split_column(PairOrder in, PairOrder out, int n) {
  return in == PairOrder::interleaved && out == PairOrder::interleaved && n > 1;
}

template <class Int>
constexpr RopeColumnOf<Int> rope_pair_column(Int rotary_dim, PairOrder in, PairOrder out, int n, Int column) {
  const Int first = column * n, second = rotary_dim / 2 + first;
  const bool split = rope_split_column(in, out, n);
  const bool in_run = in == PairOrder::interleaved && !split,
             out_run = out == PairOrder::interleaved && !split;
  RopeColumnOf<Int> c{};
  c.in_first = in_run ? 2 * first : first;
  c.in_second = in_run ? 2 * first + n : second;
  c.out_first = out_run ? 2 * first : first;
  c.out_second = out_run ? 2 * first + n : second;
  c.table = split ? first / 2 : first;
  c.table_second = split ? second / 2 : first + n / 2;
  c.rotates = true;
  return c;
}

constexpr RopeColumn rope_column(const RopeLaunch& l, PairOrder in, PairOrder out, int n, int64_t column) {
  if (column < l.pair_columns) return rope_pair_column(l.rotary_dim, in, out, n, column);
  const int64_t i = column - l.pair_columns, vectors = (l.head_dim - l.rotary_dim) / n,
                columns = l.columns - l.pair_columns;
  RopeColumn c{};
  c.in_first = c.out_first = l.rotary_dim + i * n;
  // An odd count leaves one column a single vector: it copies that one twice.
  c.in_second = c.out_second = i + columns < vectors ? l.rotary_dim + (i + columns) * n : c.in_first;
  return c;
}

}  // namespace brim::cuda
