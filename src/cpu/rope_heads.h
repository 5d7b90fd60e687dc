// RoPE's body: the heads of a block, in an order that memory likes. For rope_isa.cpp only.
#pragma once

#include "cpu/rope_angles.h"
#include "cpu/stage.h"

namespace brim::cpu {
namespace {

// Some tokens and heads of q or k.
template <class T>
struct Block {
  const RopeCall& call;
  const RopePart& part;
  const T* in;  // the first token's first head
  T* out;
  int64_t tokens, heads;
  ColumnBlock columns;
  const Tables<Arithmetic<T>>& tables;
};

struct Axis {
  int64_t count, in, out, table;
};

// Calls head(in, out, offset of its row of the tables) for each head.
//
// The CPU's prefetcher finds its stride again only some lines after a jump, and jumps are many: at the end of
// a head's tokens, over the rest of a packed row. So kStreams far neighbours go side by side, a head of each
// in turn: they jump at the same time. And each is fetched ahead, over the jump: a widened head is so much
// work that the CPU does not look far enough by itself. Without the two, strided layouts ran at half the
// speed of contiguous ones (Zen 4).
//
// Heads that are to be staged are made some near neighbours at a time, for each far one, at the place in a
// cache line that they will have in memory.
template <class T, class Head>
HWY_INLINE void for_each_head(const Block<T>& b, int64_t row_pitch, Head&& head) {
  constexpr int64_t kStreams = 4, kSize = sizeof(T);
  const ops::RopeStrides &from = b.part.from, &to = b.part.to;
  const Axis tokens{b.tokens, from.seq, to.seq, row_pitch}, heads{b.heads, from.head, to.head, 0};
  const Axis near = b.part.head_major ? tokens : heads, far = b.part.head_major ? heads : tokens;
  const int64_t elements = b.call.problem.head_dim, bytes = elements * kSize;
  const int64_t heads_ahead = bytes < b.call.fetch_ahead ? b.call.fetch_ahead / bytes : 1;

  alignas(kLine) uint8_t stage[kStreams * (kRopeStageBytes + 3 * kLine)];
  const bool staged = b.part.writing == Writing::stage, joined = near.out == elements;
  const int64_t per_stage = staged ? b.part.heads_per_stage : near.count;
  // Out moves through a line from one stream to the next; so does its place in the stage.
  const int64_t stage_pitch = line_begin(per_stage * bytes + 2 * kLine - 1) + place_in_line(far.out * kSize);
  const int64_t near_out = staged ? elements : near.out, far_out = staged ? stage_pitch / kSize : far.out;
  const auto stage_of = [&](const T* out)
                            BRIM_INLINE_LAMBDA { return stage + kLine + place_in_line(address(out)); };

  for (int64_t first = 0; first < far.count; first += kStreams) {
    const int64_t group = far.count - first < kStreams ? far.count - first : kStreams;
    for (int64_t begin = 0, end; begin < near.count; begin = end) {
      end = near.count - begin < per_stage ? near.count : begin + per_stage;
      T* const final = b.out + first * far.out + begin * near.out;
      T* const made = staged ? reinterpret_cast<T*>(stage_of(final)) : final;
      for (int64_t n = begin; n < end; ++n) {
        const T* in = b.in + first * far.in + n * near.in;
        T* out = made + (n - begin) * near_out;
        int64_t table = first * far.table + n * near.table, ahead = heads_ahead * near.in;
        if (n + heads_ahead >= near.count)  // in the next group, if there is one
          ahead = first + group < far.count ? ahead + group * far.in - near.count * near.in : 0;
        for (int64_t f = 0; f < group; ++f, in += far.in, out += far_out, table += far.table) {
          // Into L2, not L1: a line for L1 occupies one of its few miss slots all the way from memory.
          for (int64_t i = 0; i < elements; i += 2 * kLine / kSize) {
            __builtin_prefetch(in + ahead + i, 0, 2);
            __builtin_prefetch(in + ahead + i + kLine / kSize, 0, 2);
          }
          head(in, out, table);
        }
      }
      if (!staged) continue;
      uint8_t* next = stage_of(final + (end - begin) * near.out);
      for (int64_t f = 0; f < group; ++f, next += stage_pitch)
        stream_staged({reinterpret_cast<const uint8_t*>(made) + f * stage_pitch,
                       reinterpret_cast<uint8_t*>(final + f * far.out), (end - begin) * bytes,
                       !joined || begin == 0, !joined || end == near.count},
                      next);
    }
  }
}

}  // namespace
}  // namespace brim::cpu
