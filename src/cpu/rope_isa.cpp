// RoPE's body, compiled once per instruction set: units, and the blocks of tokens and heads in them. simd.h
// says what such a file must not use.
#include "cpu/rope_angles.h"
#include "cpu/rope_heads.h"
#include "cpu/rope_pairs.h"

namespace brim::cpu {
namespace {

// n words, to where nothing else is read from.
template <int64_t kLanes, class Word>
HWY_INLINE void copy_words(const Word* from, Word* to, int64_t n) {
  if constexpr (kLanes > 1)
    if (n < kLanes) return copy_words<kLanes / 2>(from, to, n);
  const hn::CappedTag<Word, kLanes> d;
  for (int64_t i = 0; i + kLanes <= n; i += kLanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  if (n > 0) hn::StoreU(hn::LoadU(d, from + n - kLanes), d, to + n - kLanes);
}

// Elements r .. d-1, moved as integers: a NaN keeps its bits.
template <Store S, class T>
HWY_INLINE void pass_through(const T* in, T* out, int64_t n) {
  using Word = hwy::MakeUnsigned<hwy::UnsignedFromSize<sizeof(T)>>;
  const hn::ScalableTag<Word> d;
  const Word* from = reinterpret_cast<const Word*>(in);
  Word* to = reinterpret_cast<Word*>(out);
  if constexpr (S == Store::stream)
    for (int64_t i = 0; i < n; i += lanes_of<decltype(d)>()) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  else
    copy_words<lanes_of<decltype(d)>()>(from, to, n);
}

// kSteps: how many steps a head has, as a constant where it is a common number, else 0. With loops of two or
// four steps, counting them and forming their addresses cost a third of the speed. Step: void for heads
// narrower than a vector.
template <class T, PairOrder In, PairOrder Out, class Step, int kSteps, Store S>
HWY_NOINLINE void rotate_block(const Block<T>& b) {
  constexpr bool kDoubled = form_of<T>(In, Out) == Form::doubled;
  const ops::RopeProblem& p = b.call.problem;
  const int64_t r = p.rotary_dim, half = r / 2, rest = p.head_dim - r;
  const int64_t columns = b.columns.count, j = b.columns.first;
  const int64_t from = In == PairOrder::half ? j : 2 * j, to = Out == PairOrder::half ? j : 2 * j;
  const bool pass = rest > 0 && j == 0 && !b.part.in_place;
  const auto *cos = b.tables.cos, *sin = b.tables.sin;
  for_each_head(b, b.call.pitch * (kDoubled ? 2 : 1),
                [=](const T* in, T* out, int64_t table) BRIM_INLINE_LAMBDA {
                  const Run<T> run{in + from, out + to, half, cos + table, sin + table};
                  if constexpr (hwy::IsSame<Step, void>())
                    rotate_any<In, Out, (widest_step<In, Out, T>() + 1) / 2>(run, columns);
                  else
                    rotate_steps<Step, kSteps, S>(run, columns, (columns + Step::kPairs - 1) / Step::kPairs);
                  if (pass) pass_through<S>(in + r, out + r, rest);
                });
}

// Heads whose elements are not contiguous: gathered, rotated in half order, scattered.
template <class T>
void rotate_strided_block(const Block<T>& b) {
  constexpr int64_t kPairs = 128;  // at a time
  const ops::RopeProblem& p = b.call.problem;
  const int64_t half = p.rotary_dim / 2, from = b.part.from.dim, to = b.part.to.dim;
  const auto element = [=](PairOrder order, int64_t j, int second) BRIM_INLINE_LAMBDA {
    return order == PairOrder::half ? j + second * half : 2 * j + second;
  };
  for_each_head(b, b.call.pitch, [&](const T* in, T* out, int64_t table) BRIM_INLINE_LAMBDA {
    T x[2 * kPairs], y[2 * kPairs];
    for (int64_t first = 0, n; first < b.columns.count; first += n) {
      n = b.columns.count - first < kPairs ? b.columns.count - first : kPairs;
      const int64_t j = b.columns.first + first;
      for (int64_t i = 0; i < n; ++i)
        for (int second = 0; second < 2; ++second)
          x[i + second * kPairs] = in[element(p.in_order, j + i, second) * from];
      const Run<T> run{x, y, kPairs, b.tables.cos + table + first, b.tables.sin + table + first};
      rotate_any<PairOrder::half, PairOrder::half, lanes_of<hn::ScalableTag<Arithmetic<T>>>()>(run, n);
      for (int64_t i = 0; i < n; ++i)
        for (int second = 0; second < 2; ++second)
          out[element(p.out_order, j + i, second) * to] = y[i + second * kPairs];
    }
    if (b.columns.first == 0 && !b.part.in_place)
      for (int64_t i = p.rotary_dim; i < p.head_dim; ++i) out[i * to] = in[i * from];
  });
}

bool contiguous_heads(const RopePart& part) { return part.from.dim == 1 && part.to.dim == 1; }

template <class T, PairOrder In, PairOrder Out, int64_t kPairs, Store S>
void dispatch_count(const Block<T>& b) {
  using Step = StepOf<In, Out, T, kPairs>;
  const int64_t steps = (b.columns.count + kPairs - 1) / kPairs;
  if constexpr (kNativeMasks && hwy::IsSame<Step, SplitStep<hn::ScalableTag<float>>>())
    if (b.columns.count < kPairs)
      return rotate_block<T, In, Out, MaskedSplitStep<hn::ScalableTag<float>>, 1, Store::plain>(b);
  if constexpr (In == Out) {
    if (steps == 1) return rotate_block<T, In, Out, Step, 1, S>(b);
    if (steps == 2) return rotate_block<T, In, Out, Step, 2, S>(b);
    if (steps == 3) return rotate_block<T, In, Out, Step, 3, S>(b);
    if (steps == 4) return rotate_block<T, In, Out, Step, 4, S>(b);
  }
  rotate_block<T, In, Out, Step, 0, S>(b);
}

template <class T, PairOrder In, PairOrder Out>
void dispatch_steps(const Block<T>& b) {
  constexpr int64_t kWidest = widest_step<In, Out, T>();
  if constexpr (!(In == PairOrder::half && Out == PairOrder::interleaved && sizeof(T) > 2))
    if (b.part.writing == Writing::stream) return dispatch_count<T, In, Out, kWidest, Store::stream>(b);
  const int64_t pairs = step_pairs<In, Out, T>(b.columns.count);
  if (pairs == kWidest) return dispatch_count<T, In, Out, kWidest, Store::plain>(b);
  if constexpr (kWidest >= 16)
    if (pairs) return dispatch_count<T, In, Out, kWidest / 2, Store::plain>(b);
  rotate_block<T, In, Out, void, 0, Store::plain>(b);
}

template <class T>
void dispatch_orders(const Block<T>& b) {
  constexpr PairOrder H = PairOrder::half, I = PairOrder::interleaved;
  const ops::RopeProblem& p = b.call.problem;
  if (!contiguous_heads(b.part)) return rotate_strided_block<T>(b);
  if (p.in_order == H)
    p.out_order == H ? dispatch_steps<T, H, H>(b) : dispatch_steps<T, H, I>(b);
  else
    p.out_order == H ? dispatch_steps<T, I, H>(b) : dispatch_steps<T, I, I>(b);
}

struct Unit {
  TokenBlock tokens;
  int64_t head_begin, head_end;  // of q's and k's heads in a row
};

// The part of a unit that q or k has, `before` being the heads that come before its own. `loaded` tells for
// which form the tables are loaded: q and k of one type share them.
template <class T, class C>
void rotate_part(const RopeCall& call, const RopePart& part, const Unit& unit, int64_t before,
                 const ColumnBlock& columns, Tables<C>& tables, int* loaded) {
  const int64_t first = unit.head_begin > before ? unit.head_begin - before : 0;
  const int64_t last = unit.head_end - before < part.heads ? unit.head_end - before : part.heads;
  if (first >= last) return;
  const ops::RopeProblem& p = call.problem;
  const Form form = contiguous_heads(part) ? form_of<T>(p.in_order, p.out_order) : Form::plain;
  if (*loaded != static_cast<int>(form)) load_tables(call, unit.tokens, columns, form, tables);
  *loaded = static_cast<int>(form);

  const ops::RopeStrides &from = part.from, &to = part.to;
  const TokenBlock& t = unit.tokens;
  const T* in =
      static_cast<const T*>(part.in) + t.batch * from.batch + t.first * from.seq + first * from.head;
  T* out = static_cast<T*>(part.out) + t.batch * to.batch + t.first * to.seq + first * to.head;
  dispatch_orders<T>({call, part, in, out, t.count, last - first, columns, tables});
}

template <class C>
void rotate_unit(const RopeCall& call, int64_t index, Tables<C>& tables) {
  const ops::RopeProblem& p = call.problem;
  const int64_t head_block = index % call.head_blocks, rest = index / call.head_blocks;
  const int64_t first = rest % call.token_blocks * call.tokens_per_unit, left = p.seq - first;
  const Unit unit{
      {rest / call.token_blocks, first, left < call.tokens_per_unit ? left : call.tokens_per_unit},
      head_block * call.heads_per_unit,
      (head_block + 1) * call.heads_per_unit};
  ColumnBlock columns{0, 0};
  do {  // once, unless r/2 is more than the tables hold; once also for r = 0, whose elements all pass through
    columns.count = p.rotary_dim / 2 - columns.first;
    if (columns.count > call.columns) columns.count = call.columns;
    int loaded = -1;
    int64_t before = 0;
    for (const RopePart& part : call.parts) {
      if constexpr (sizeof(C) == 8) {
        rotate_part<double>(call, part, unit, before, columns, tables, &loaded);
      } else {
        switch (part.dtype) {
          case BRIM_BFLOAT16:
            rotate_part<bfloat16>(call, part, unit, before, columns, tables, &loaded);
            break;
          case BRIM_FLOAT16: rotate_part<float16>(call, part, unit, before, columns, tables, &loaded); break;
          default: rotate_part<float>(call, part, unit, before, columns, tables, &loaded);
        }
      }
      before += part.heads;
    }
    columns.first += columns.count;
  } while (columns.first < p.rotary_dim / 2);
}

template <class C>
void rotate_units(const RopeCall& call, int64_t begin, int64_t end) {
  Tables<C> tables;
  for (int64_t unit = begin; unit < end; ++unit) rotate_unit(call, unit, tables);
}

}  // namespace

namespace BRIM_THIS_ISA {

void rope_units(const RopeCall& call, int64_t begin, int64_t end) {
  call.problem.dtype == BRIM_FLOAT64 ? rotate_units<double>(call, begin, end)
                                     : rotate_units<float>(call, begin, end);
  if (call.parts[0].writing != Writing::plain || call.parts[1].writing != Writing::plain) hwy::FlushStream();
}

}  // namespace BRIM_THIS_ISA
}  // namespace brim::cpu
