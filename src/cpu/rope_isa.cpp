// RoPE's body, compiled once per instruction set. simd.h says what this file must not use.
#include "cpu/rope.h"
#include "cpu/simd.h"

namespace brim::cpu {
namespace {

using ops::PairOrder;

// Whether vectors hold several elements: two of angles then make one of 16-bit elements.
constexpr bool kWide = HWY_TARGET != HWY_SCALAR;

// How a row of the tables stands in memory.
enum class Form {
  plain,
  doubled,  // each column twice, beside its pair's two elements, the sine with the sign of either place
  split     // in every two vectors of columns the even ones first, then the odd ones
};

template <class T>
constexpr Form form_of(PairOrder in, PairOrder out) {
  if (in == PairOrder::interleaved && out == PairOrder::interleaved && sizeof(T) > 2) return Form::doubled;
  const bool half = in == PairOrder::half && out == PairOrder::half;
  return kWide && half && hwy::IsSame<T, bfloat16>() ? Form::split : Form::plain;
}

// ---- the pairs of one head ----

// A run of pairs of one head. `in_half`, `out_half`: from a pair's first element to its second, in half order.
template <class T>
struct Run {
  const T* in;
  int64_t in_half;
  T* out;
  int64_t out_half;
  const Arithmetic<T>*cos, *sin;
};

// As many pairs as D has lanes, from pair j on: loaded, widened, rotated.
template <PairOrder In, class D, class T>
HWY_INLINE void load_rotated(D d, const Run<T>& run, int64_t j, hn::Vec<D>& y1, hn::Vec<D>& y2) {
  hn::Vec<D> x1, x2;
  if constexpr (In == PairOrder::half) {
    x1 = load(d, run.in + j);
    x2 = load(d, run.in + run.in_half + j);
  } else {
    load_pairs(d, run.in + 2 * j, x1, x2);
  }
  const auto c = hn::LoadU(d, run.cos + j), s = hn::LoadU(d, run.sin + j);
  y1 = hn::NegMulAdd(x2, s, hn::Mul(x1, c));
  y2 = hn::MulAdd(x1, s, hn::Mul(x2, c));
}

template <PairOrder In, PairOrder Out, Store S, class D, class T>
HWY_INLINE void rotate_one(D d, const Run<T>& run, int64_t j) {
  hn::Vec<D> y1, y2;
  load_rotated<In>(d, run, j, y1, y2);
  if constexpr (Out == PairOrder::half) {
    store<S>(d, y1, run.out + j);
    store<S>(d, y2, run.out + run.out_half + j);
  } else {
    store_pairs<S>(d, y1, y2, run.out + 2 * j);
  }
}

// Two vectors of pairs, whose halves make one whole vector each of 16-bit elements.
template <PairOrder In, Store S, class D, class T>
HWY_INLINE void rotate_two(D d, const Run<T>& run, int64_t j) {
  hn::Vec<D> y1, y2, z1, z2;
  load_rotated<In>(d, run, j, y1, y2);
  load_rotated<In>(d, run, j + static_cast<int64_t>(hn::Lanes(d)), z1, z2);
  store2<S>(d, y1, z1, run.out + j);
  store2<S>(d, y2, z2, run.out + run.out_half + j);
}

// bfloat16 in half order, from split tables: the even elements and the odd ones of a vector are two vectors of floats
// without being moved.
template <Store S, class D, class T>
HWY_INLINE void rotate_split(D d, const Run<T>& run, int64_t j) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> a1, b1, a2, b2;
  load_pairs(d, run.in + j, a1, b1);
  load_pairs(d, run.in + run.in_half + j, a2, b2);
  const auto ac = hn::LoadU(d, run.cos + j), bc = hn::LoadU(d, run.cos + j + lanes);
  const auto as = hn::LoadU(d, run.sin + j), bs = hn::LoadU(d, run.sin + j + lanes);
  store_pairs<S>(d, hn::NegMulAdd(a2, as, hn::Mul(a1, ac)), hn::NegMulAdd(b2, bs, hn::Mul(b1, bc)), run.out + j);
  store_pairs<S>(d, hn::MulAdd(a1, as, hn::Mul(a2, ac)), hn::MulAdd(b1, bs, hn::Mul(b2, bc)), run.out + run.out_half + j);
}

// The rest of a run in narrower vectors, so that every pair goes through the same instructions.
template <size_t kLanes, PairOrder In, PairOrder Out, class T>
HWY_INLINE int64_t rotate_narrow(const Run<T>& run, int64_t j, int64_t n) {
  using C = Arithmetic<T>;
  if constexpr (hn::MaxLanes(hn::ScalableTag<C>()) > kLanes || kLanes == 1) {
    const hn::CappedTag<C, kLanes> d;
    for (; j + static_cast<int64_t>(kLanes) <= n; j += kLanes) rotate_one<In, Out, Store::plain>(d, run, j);
  }
  return j;
}

// Streams only whole vectors: with Store::stream the caller has made sure that n is made of them.
template <PairOrder In, PairOrder Out, Store S, class T>
HWY_INLINE void rotate_run(const Run<T>& run, int64_t n) {
  const hn::ScalableTag<Arithmetic<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr bool kTwo = kWide && sizeof(T) == 2 && Out == PairOrder::half;
  int64_t j = 0;
  if constexpr (kTwo && form_of<T>(In, Out) == Form::split)
    for (; j + 2 * lanes <= n; j += 2 * lanes) rotate_split<S>(d, run, j);
  else if constexpr (kTwo)
    for (; j + 2 * lanes <= n; j += 2 * lanes) rotate_two<In, S>(d, run, j);
  for (; j + lanes <= n; j += lanes) rotate_one<In, Out, kTwo ? Store::plain : S>(d, run, j);
  j = rotate_narrow<8, In, Out>(run, j, n);
  j = rotate_narrow<4, In, Out>(run, j, n);
  rotate_narrow<1, In, Out>(run, j, n);
}

// Interleaved 32- and 64-bit elements stay where they are: each is multiplied by its column's cosine, its neighbour by
// the sine with the sign of its place, from doubled tables. fma(x2, -s, x1*c) is fma(-x2, s, x1*c).
template <Store S, class T>
HWY_INLINE void rotate_doubled(const Run<T>& run, int64_t n) {
  int64_t i = 0;
  if constexpr (kWide) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= 2 * n; i += lanes) {
      const auto x = hn::LoadU(d, run.in + i);
      const auto c = hn::LoadU(d, run.cos + i), s = hn::LoadU(d, run.sin + i);
      put<S>(d, hn::MulAdd(hn::Reverse2(d, x), s, hn::Mul(x, c)), run.out + i);
    }
  }
  const hn::CappedTag<T, 1> d;
  for (; i < 2 * n; i += 2) {
    const auto x1 = hn::LoadU(d, run.in + i), x2 = hn::LoadU(d, run.in + i + 1);
    const auto c = hn::LoadU(d, run.cos + i), s = hn::LoadU(d, run.sin + i + 1);
    hn::StoreU(hn::NegMulAdd(x2, s, hn::Mul(x1, c)), d, run.out + i);
    hn::StoreU(hn::MulAdd(x1, s, hn::Mul(x2, c)), d, run.out + i + 1);
  }
}

// ---- the tables of a unit ----

template <class C>
struct Tables {
  alignas(64) C cos[kRopeTableBytes / sizeof(C)];
  alignas(64) C sin[kRopeTableBytes / sizeof(C)];
};

// Widens n columns; `even` and `odd` flip the sign of the value, or of the two that each column becomes when doubled.
template <class C, class T>
HWY_INLINE void load_columns(const T* p, int64_t stride, int64_t n, C* out, bool doubled, C even, C odd) {
  const auto columns = [=](auto d, int64_t j) HWY_ATTR {
    const auto v = with_short_nans(d, load(d, p + j * stride));
    const auto first = hn::Xor(v, hn::Set(d, even));
    if (doubled)
      hn::StoreInterleaved2(first, hn::Xor(v, hn::Set(d, odd)), d, out + 2 * j);
    else
      hn::StoreU(first, d, out + j);
  };
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  if (stride == 1)
    for (; j + lanes <= n; j += lanes) columns(d, j);
  for (; j < n; ++j) columns(hn::CappedTag<C, 1>(), j);
}

template <class C>
HWY_INLINE void split_columns(C* row, int64_t n) {
  if constexpr (kWide) {
    const hn::ScalableTag<C> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t j = 0; j + 2 * lanes <= n; j += 2 * lanes) {
      const auto lower = hn::LoadU(d, row + j), upper = hn::LoadU(d, row + j + lanes);
      hn::StoreU(hn::ConcatEven(d, upper, lower), d, row + j);
      hn::StoreU(hn::ConcatOdd(d, upper, lower), d, row + j + lanes);
    }
  }
}

struct TokenBlock {
  int64_t batch, first, count;
};
struct ColumnBlock {
  int64_t first, count;
};

template <class C, class T>
void load_table(const RopeCall& call, const T* table, const ops::RopeTableStrides& stride, const TokenBlock& tokens,
                const ColumnBlock& columns, Form form, C even, C odd, C* out) {
  const ops::RopeProblem& p = call.problem;
  const bool doubled = form == Form::doubled;
  for (int64_t i = 0; i < tokens.count; ++i, out += call.pitch * (doubled ? 2 : 1)) {
    const int64_t token = tokens.first + i;
    const int64_t row = p.position_dtype == BRIM_DTYPE_NONE
                            ? token
                            : ops::rope_position(call.positions, p.position_dtype,
                                                 tokens.batch * p.position_batch_stride + token * p.position_seq_stride);
    const T* at = table + tokens.batch * stride.batch + row * stride.row + columns.first * stride.column;
    for (int64_t j = 0, n; j < columns.count; j += n) {  // runs of columns that read the same axis
      int axis = 0;
      n = columns.count;
      if (p.has_sections) {
        const auto axis_of = [&](int64_t column) HWY_ATTR {
          return ops::rope_section_axis(p.sections, p.sections_interleaved, columns.first + column);
        };
        axis = axis_of(j);
        for (n = 1; j + n < columns.count && axis_of(j + n) == axis;) ++n;
      }
      load_columns(at + axis * stride.axis + j * stride.column, stride.column, n, out + j * (doubled ? 2 : 1), doubled,
                   even, odd);
    }
    if (form == Form::split) split_columns(out, columns.count);
  }
}

template <class T, class C>
void load_tables_as(const RopeCall& call, const TokenBlock& tokens, const ColumnBlock& columns, Form form,
                    Tables<C>& tables) {
  const ops::RopeProblem& p = call.problem;
  const C minus = static_cast<C>(-0.0), plus = 0;
  load_table<C>(call, static_cast<const T*>(call.cos), p.cos, tokens, columns, form, plus, plus, tables.cos);
  // Doubled: -s at the pair's first element, s at its second; the transposed rotation has both the other way.
  const bool flip = p.negate_sin != (form == Form::doubled);
  load_table<C>(call, static_cast<const T*>(call.sin), p.sin, tokens, columns, form, flip ? minus : plus,
                flip ? plus : minus, tables.sin);
}

void load_tables(const RopeCall& call, const TokenBlock& tokens, const ColumnBlock& columns, Form form,
                 Tables<float>& tables) {
  switch (call.problem.table_dtype) {
    case BRIM_BFLOAT16: return load_tables_as<bfloat16>(call, tokens, columns, form, tables);
    case BRIM_FLOAT16: return load_tables_as<float16>(call, tokens, columns, form, tables);
    default: return load_tables_as<float>(call, tokens, columns, form, tables);
  }
}
void load_tables(const RopeCall& call, const TokenBlock& tokens, const ColumnBlock& columns, Form form,
                 Tables<double>& tables) {
  load_tables_as<double>(call, tokens, columns, form, tables);
}

// ---- a block of tokens and heads of q or k ----

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

// Bytes of a stream that are fetched into L2 ahead of the work: a widened head is so much work that the CPU does not look
// far enough ahead by itself.
constexpr int64_t kFetchAhead = 2048;
constexpr int64_t kCacheLine = 64;

template <class T>
HWY_INLINE void fetch(const T* head, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(reinterpret_cast<const char*>(head) + i, 0, 2);
}

struct Axis {
  int64_t count, in, out, table;
};

// Calls head(in, out, offset of its row of the tables) for each head, in an order that memory likes. The CPU's prefetcher
// finds its stride again only some lines after a jump, and jumps are many: at the end of a head's tokens, over the rest of
// a packed row. So kStreams far neighbours go side by side, a head of each in turn: they jump at the same time. This and
// fetching ahead took strided layouts from half the speed of contiguous ones to the same (Zen 4).
template <class T, class Head>
HWY_INLINE void for_each_head(const Block<T>& b, int64_t row_pitch, Head&& head) {
  constexpr int64_t kStreams = 8;
  const ops::RopeStrides &from = b.part.from, &to = b.part.to;
  const Axis tokens{b.tokens, from.seq, to.seq, row_pitch}, heads{b.heads, from.head, to.head, 0};
  const Axis near = b.part.head_major ? tokens : heads, far = b.part.head_major ? heads : tokens;
  const int64_t bytes = b.call.problem.head_dim * static_cast<int64_t>(sizeof(T));
  const int64_t ahead = bytes < kFetchAhead ? kFetchAhead / bytes : 1;
  for (int64_t first = 0; first < far.count; first += kStreams) {
    const int64_t group = far.count - first < kStreams ? far.count - first : kStreams;
    const T* in = b.in + first * far.in;
    T* out = b.out + first * far.out;
    int64_t table = first * far.table;
    for (int64_t n = 0; n < near.count; ++n, in += near.in, out += near.out, table += near.table) {
      const T* next = in + ahead * near.in;
      if (n + ahead >= near.count) next += group * far.in - near.count * near.in;  // of the next group
      for (int64_t f = 0; f < group; ++f) {
        fetch(next + f * far.in, bytes);
        head(in + f * far.in, out + f * far.out, table + f * far.table);
      }
    }
  }
}

// Elements r .. d-1, moved as integers: a NaN keeps its bits.
template <Store S, class T>
HWY_INLINE void pass_through(const T* in, T* out, int64_t n) {
  using Word = hwy::MakeUnsigned<hwy::UnsignedFromSize<sizeof(T)>>;
  const hn::ScalableTag<Word> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Word* from = reinterpret_cast<const Word*>(in);
  Word* to = reinterpret_cast<Word*>(out);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) put<S>(d, hn::LoadU(d, from + i), to + i);
  const hn::CappedTag<Word, 1> one;
  for (; i < n; ++i) hn::StoreU(hn::LoadU(one, from + i), one, to + i);
}

template <class T, PairOrder In, PairOrder Out, Store S>
void rotate_block(const Block<T>& b) {
  constexpr bool kDoubled = form_of<T>(In, Out) == Form::doubled;
  const ops::RopeProblem& p = b.call.problem;
  const int64_t j = b.columns.first, half = p.rotary_dim / 2, rest = p.head_dim - p.rotary_dim;
  const int64_t from = In == PairOrder::half ? j : 2 * j, to = Out == PairOrder::half ? j : 2 * j;
  const bool pass = rest > 0 && j == 0 && !b.part.in_place;
  for_each_head(b, b.call.pitch * (kDoubled ? 2 : 1), [&](const T* in, T* out, int64_t table) HWY_ATTR {
    const Run<T> run{in + from, half, out + to, half, b.tables.cos + table, b.tables.sin + table};
    if constexpr (kDoubled)
      rotate_doubled<S>(run, b.columns.count);
    else
      rotate_run<In, Out, S>(run, b.columns.count);
    if (pass) pass_through<S>(in + p.rotary_dim, out + p.rotary_dim, rest);
  });
}

// Heads whose elements are not contiguous: gathered, rotated in half order, scattered.
template <class T>
void rotate_strided_block(const Block<T>& b) {
  constexpr int64_t kPairs = 128;  // at a time
  const ops::RopeProblem& p = b.call.problem;
  const int64_t half = p.rotary_dim / 2, from = b.part.from.dim, to = b.part.to.dim;
  const auto element = [=](PairOrder order, int64_t j, int second) HWY_ATTR {
    return order == PairOrder::half ? j + second * half : 2 * j + second;
  };
  for_each_head(b, b.call.pitch, [&](const T* in, T* out, int64_t table) HWY_ATTR {
    T x[2 * kPairs], y[2 * kPairs];
    for (int64_t first = 0, n; first < b.columns.count; first += n) {
      n = b.columns.count - first < kPairs ? b.columns.count - first : kPairs;
      const int64_t j = b.columns.first + first;
      for (int64_t i = 0; i < n; ++i)
        for (int second = 0; second < 2; ++second)
          x[i + second * kPairs] = in[element(p.in_order, j + i, second) * from];
      const Run<T> run{x, kPairs, y, kPairs, b.tables.cos + table + first, b.tables.sin + table + first};
      rotate_run<PairOrder::half, PairOrder::half, Store::plain>(run, n);
      for (int64_t i = 0; i < n; ++i)
        for (int second = 0; second < 2; ++second)
          out[element(p.out_order, j + i, second) * to] = y[i + second * kPairs];
    }
    if (b.columns.first == 0 && !b.part.in_place)
      for (int64_t i = p.rotary_dim; i < p.head_dim; ++i) out[i * to] = in[i * from];
  });
}

bool contiguous_heads(const RopePart& part) { return part.from.dim == 1 && part.to.dim == 1; }

template <class T, Store S>
void dispatch_orders(const Block<T>& b) {
  constexpr PairOrder H = PairOrder::half, I = PairOrder::interleaved;
  const ops::RopeProblem& p = b.call.problem;
  if (p.in_order == H) {
    if (p.out_order == H) return rotate_block<T, H, H, S>(b);
    // 32- and 64-bit elements cannot be interleaved in a streaming store.
    return rotate_block<T, H, I, sizeof(T) == 2 ? S : Store::plain>(b);
  }
  p.out_order == H ? rotate_block<T, I, H, S>(b) : rotate_block<T, I, I, S>(b);
}

template <class T>
void dispatch_stores(const Block<T>& b) {
  if (!contiguous_heads(b.part)) return rotate_strided_block<T>(b);
  b.part.stream ? dispatch_orders<T, Store::stream>(b) : dispatch_orders<T, Store::plain>(b);
}

struct Unit {
  TokenBlock tokens;
  int64_t head_begin, head_end;  // of q's and k's heads in a row
};

// The part of a unit that q or k has, `before` being the heads that come before its own. `loaded` tells for which form the
// tables are loaded: q and k of one type share them.
template <class T, class C>
void rotate_part(const RopeCall& call, const RopePart& part, const Unit& unit, int64_t before, const ColumnBlock& columns,
                 Tables<C>& tables, int* loaded) {
  const int64_t first = unit.head_begin > before ? unit.head_begin - before : 0;
  const int64_t last = unit.head_end - before < part.heads ? unit.head_end - before : part.heads;
  if (first >= last) return;
  const ops::RopeProblem& p = call.problem;
  // Heads that are not contiguous are rotated in half order, whatever theirs.
  const Form form = contiguous_heads(part) ? form_of<T>(p.in_order, p.out_order)
                                           : form_of<T>(PairOrder::half, PairOrder::half);
  if (*loaded != static_cast<int>(form)) load_tables(call, unit.tokens, columns, form, tables);
  *loaded = static_cast<int>(form);

  const ops::RopeStrides &from = part.from, &to = part.to;
  const TokenBlock& t = unit.tokens;
  const T* in = static_cast<const T*>(part.in) + t.batch * from.batch + t.first * from.seq + first * from.head;
  T* out = static_cast<T*>(part.out) + t.batch * to.batch + t.first * to.seq + first * to.head;
  dispatch_stores<T>({call, part, in, out, t.count, last - first, columns, tables});
}

template <class C>
void rotate_unit(const RopeCall& call, int64_t index, Tables<C>& tables) {
  const ops::RopeProblem& p = call.problem;
  const int64_t head_block = index % call.head_blocks, rest = index / call.head_blocks;
  const int64_t first = rest % call.token_blocks * call.tokens_per_unit, left = p.seq - first;
  const Unit unit{{rest / call.token_blocks, first, left < call.tokens_per_unit ? left : call.tokens_per_unit},
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
          case BRIM_BFLOAT16: rotate_part<bfloat16>(call, part, unit, before, columns, tables, &loaded); break;
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
  call.problem.dtype == BRIM_FLOAT64 ? rotate_units<double>(call, begin, end) : rotate_units<float>(call, begin, end);
  if (call.parts[0].stream || call.parts[1].stream) hwy::FlushStream();
}

}  // namespace BRIM_THIS_ISA
}  // namespace brim::cpu
