// The norms through a ring of rows in shared memory (Hopper and newer): backward, and forward of long rows.
//
// Persistent CTAs, or clusters of them that share each row. One warp loads rows into the ring's slots by bulk copies and
// runs ahead; the others sum row k+1 while the sums of row k, of all warps and CTAs, come together, and then write row k:
// nobody waits for a reduction. Each thread has the same columns of every row, their weights and their sums for dweight in
// registers. kShifted: rows need not begin at multiples of 16 bytes (rms_norm_bulk.cuh), but all of a CTA's do so alike.
#pragma once

#include "cuda/device/rms_norm_backward.cuh"
#include "cuda/device/rms_norm_bulk.cuh"

namespace brim::cuda {

// A warp may be posting the sums of a row while the slowest one still reads those of three rows before.
inline constexpr int kNormPosts = 4;

struct NormRing {
  uint64_t full[kNormMostSlots], empty[kNormMostSlots], posted[kNormPosts];
  float sums[kNormPosts][kNormMostCluster * kNormRingThreads / 32];
};

// What both directions need: this CTA's columns of each row, this thread's vectors of those, sums over a row.
template <int N, int V, bool kShifted>
struct NormRingThread {
  const NormParams& p;
  NormRing& ring;
  char* const slots;
  const int rank, begin, count;  // of a row: this CTA's columns
  NormGrid<N, kShifted> grid;    // the same for all its rows
  bool whole = true;             // whether all that is read fits it
  uint32_t places = 0;           // within 16 bytes, of what is read, 4 bits each

  __device__ __forceinline__ NormRingThread(const NormParams& params, NormRing& r, char* memory)
      : p(params),
        ring(r),
        slots(memory),
        rank(params.cluster > 1 ? blockIdx.x % params.cluster : 0),
        begin(rank * params.share),
        count(max(min(params.share, static_cast<int>(params.hidden) - begin), 0)) {}

  __device__ __forceinline__ int group() const { return p.cluster > 1 ? blockIdx.x / p.cluster : blockIdx.x; }
  static __device__ __forceinline__ int warps() { return (blockDim.x - 32) / 32; }

  // use(v, column) for this thread's vectors, which begin at these columns of the share. The thread's place is opaque where
  // there are many vectors, or the compiler would keep what follows from it for each in registers, from row to row; so is the
  // order, or it would read them all first.
  template <class Use>
  __device__ __forceinline__ void each_vector(Use use) const {
    int thread = threadIdx.x;
    if (V > 2 || kShifted) asm volatile("" : "+r"(thread));
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int vector = v * (static_cast<int>(blockDim.x) - 32) + thread;
      if (vector >= grid.vectors) continue;
      if (V > 2) asm volatile("" ::: "memory");
      use(v, grid.column(vector));
    }
  }

  // use(column, true) for this thread's column beside the vectors, or use(0, false): by the first warp, of which all go on.
  template <class Use>
  __device__ __forceinline__ void single(Use use) const {
    if constexpr (kShifted) {
      int thread = threadIdx.x;
      asm volatile("" : "+r"(thread));
      if (thread >= 32) return;
      const int column = grid.single(thread);
      use(max(column, 0), column >= 0);
    }
  }
  // The i-th tensor that is read, of T, by the CTA's first row.
  template <class T>
  __device__ __forceinline__ void reads(int i, char* row) {
    places |= (reinterpret_cast<uintptr_t>(part<T>(row)) & 15) << (4 * i);
    whole = whole && grid.template fits<T>(part<T>(row));
  }
  // use(true or false)
  template <class Use>
  __device__ __forceinline__ void by_fit(Use use) const {
    if (!kShifted || whole)
      use(std::true_type());
    else if constexpr (kShifted)
      use(std::false_type());
  }

  // This CTA's part of a row of T in memory.
  template <class T>
  __device__ __forceinline__ char* part(char* row) const {
    return row + begin * static_cast<int64_t>(sizeof(T));
  }
  // Where the i-th tensor's part of a row is, in a slot's part at `at`.
  __device__ __forceinline__ const char* placed(int i, const char* at) const {
    return kShifted ? at + (places >> (4 * i) & 15) : at;
  }
  template <class W>
  __device__ __forceinline__ Elements<W, N> weights(int column) const {
    if constexpr (kShifted)
      return norm_load_unaligned_weight<W, N>(p, begin + column);
    else
      return norm_load_weight<W, N>(p, begin + column);
  }

  __device__ __forceinline__ void post(float sum, int k) const {
    const int lane = threadIdx.x % 32, i = k % kNormPosts;
    sum = norm_warp_sum(sum);
    float* const here = ring.sums[i] + rank * warps() + threadIdx.x / 32;
    if (p.cluster == 1) {
      if (lane == 0) {
        *here = sum;
        mbarrier_arrive(ring.posted + i);
      }
    } else {
      if (threadIdx.x == 0) {
        mbarrier_expect(ring.posted + i, warps() * p.cluster * static_cast<int>(sizeof(float)));
        mbarrier_arrive(ring.posted + i);
      }
      if (lane < p.cluster) cluster_store(here, sum, ring.posted + i, lane);
    }
  }
  // The sum of a whole row, in one order for all threads.
  __device__ __forceinline__ float collect(int k) const {
    const int all = warps() * p.cluster, i = k % kNormPosts, lane = threadIdx.x % 32;
    mbarrier_wait(ring.posted + i, k / kNormPosts % 2);
    float sum = lane < all ? ring.sums[i][lane] : 0;
#pragma unroll 1
    for (int j = lane + 32; j < all; j += 32) sum += ring.sums[i][j];
    return norm_warp_sum(sum);
  }
};

template <class TX, class TS, class TW, bool kAdd, int N, int V, bool kShifted>
struct NormRingForward : NormRingThread<N, V, kShifted> {
  using Base = NormRingThread<N, V, kShifted>;
  using Base::Base;
  using Base::begin, Base::count, Base::grid, Base::p;
  using Grid = NormGrid<N, kShifted>;
  Elements<TW, N> w[V];
  Elements<TW, 1> single_w;

  __device__ __forceinline__ int slot_bytes() const { return p.pitch + (kAdd ? p.sum_pitch : 0); }
  __device__ __forceinline__ void load(char* slot, int row, uint64_t* full) const {
    const int lane = threadIdx.x % 32;
    const NormRow place = norm_row(p, row);
    const bool alone = norm_alone(p, row);
    const NormPart<TX, kShifted> x(norm_at<TX>(p, kX, place), begin, count, slot, alone);
    const NormPart<TS, kShifted> residual(kAdd ? norm_at<TS>(p, kResidual, place) : nullptr, begin,
                                          kAdd ? count : 0, slot + p.pitch, alone);
    if (lane == 0) {
      mbarrier_expect(full, x.run.middle + (kAdd ? residual.run.middle : 0));
      x.load(full);
      if constexpr (kAdd) residual.load(full);
    }
    if (!kShifted || !alone) return;
    x.load_ends(lane);
    if constexpr (kAdd) residual.load_ends(lane);
  }

  __device__ __forceinline__ void start(int first) {
    const NormRow place = norm_row(p, first);
    grid = Grid::template of<TX>(this->template part<TX>(norm_at<TX>(p, kY, place)), count);
    this->template reads<TX>(0, norm_at<TX>(p, kX, place));
    if constexpr (kAdd) this->template reads<TS>(1, norm_at<TS>(p, kResidual, place));
    this->each_vector([&](int v, int j) { w[v] = this->template weights<TW>(j); });
    this->single([&](int j, bool) { single_w = norm_load_weight<TW, 1>(p, begin + j); });
  }
  __device__ __forceinline__ void turn(int) {}

  // S of a row's columns. The sum with the residual is formed twice, which costs less than to keep it.
  struct Row {
    const char *x, *residual;
  };
  __device__ __forceinline__ Row row_in(const char* slot) const {
    return {this->placed(0, slot), this->placed(1, slot + p.pitch)};
  }
  template <int M, bool kWhole>
  static __device__ __forceinline__ Elements<TS, M> read(const Row& from, int column) {
    if constexpr (kAdd)
      return norm_add<TX, TS, true, M>(
          norm_shared<TX, M, kWhole>(from.x + column * static_cast<int>(sizeof(TX))),
          norm_shared<TS, M, kWhole>(from.residual + column * static_cast<int>(sizeof(TS))));
    else
      return norm_shared<TS, M, kWhole>(from.x + column * static_cast<int>(sizeof(TS)));
  }
  __device__ __forceinline__ float sum(const char* slot, int row) {
    const Row from = row_in(slot);
    float squares = 0;
    this->by_fit([&](auto whole) {
      [[maybe_unused]] char* const to =
          kAdd ? this->template part<TS>(norm_at<TS>(p, kSum, norm_row(p, row))) : nullptr;
      this->each_vector([&](int, int j) {
        const Elements<TS, N> s = read<N, decltype(whole)::value>(from, j);
        if constexpr (kAdd) norm_put<TS, N, kShifted>(to + j * static_cast<int64_t>(sizeof(TS)), s);
        squares += norm_squares(s);
      });
      this->single([&](int j, bool on) {
        const Elements<TS, 1> s = read<1, true>(from, j);
        if constexpr (kAdd)
          if (on) norm_store<TS, 1>(to + j * static_cast<int64_t>(sizeof(TS)), s);
        squares += on ? norm_squares(s) : 0;
      });
    });
    return squares;
  }
  __device__ __forceinline__ void write(const char* slot, int row, float squares) {
    const float rstd = norm_rstd(p, squares);
    if (p.saves_rstd && threadIdx.x == 0 && this->rank == 0) p.rstd[row * p.rstd_stride] = rstd;
    const Row from = row_in(slot);
    this->by_fit([&](auto whole) {
      char* const y = this->template part<TX>(norm_at<TX>(p, kY, norm_row(p, row)));
      this->each_vector([&](int v, int j) {
        norm_store<TX, N>(y + j * static_cast<int64_t>(sizeof(TX)),
                          norm_scaled<TX>(p, read<N, decltype(whole)::value>(from, j), rstd, w[v]));
      });
      this->single([&](int j, bool on) {
        const Elements<TX, 1> scaled = norm_scaled<TX>(p, read<1, true>(from, j), rstd, single_w);
        if (on) norm_store<TX, 1>(y + j * static_cast<int64_t>(sizeof(TX)), scaled);
      });
    });
  }
  __device__ __forceinline__ void summed() {}
  __device__ __forceinline__ void arrive() {}
  __device__ __forceinline__ void finish() {}
};

template <class TX, class TS, class TW, bool kAdd, int N, int V, bool kShifted>
struct NormRingBackward : NormRingThread<N, V, kShifted> {
  using Base = NormRingThread<N, V, kShifted>;
  using Base::Base;
  using Base::begin, Base::count, Base::grid, Base::p;
  using Grid = NormGrid<N, kShifted>;
  float w[V][N], dweight[V][N] = {};
  float single_w[1] = {}, single_dweight[1] = {};
  float rstd = 0, next_rstd = 0, later_rstd = 0;
  NormFinish dweight_finish;

  __device__ __forceinline__ bool has_dy() const { return !kAdd || p.has_dy; }
  __device__ __forceinline__ int slot_bytes() const { return p.pitch + (kAdd ? 2 : 1) * p.sum_pitch; }
  __device__ __forceinline__ void load(char* slot, int row, uint64_t* full) const {
    const int lane = threadIdx.x % 32;
    const NormRow place = norm_row(p, row);
    const bool alone = norm_alone(p, row);
    const NormPart<TS, kShifted> s(norm_at<TS>(p, kS, place), begin, has_dy() ? count : 0, slot, alone);
    const NormPart<TX, kShifted> dy(norm_at<TX>(p, kDy, place), begin, has_dy() ? count : 0,
                                    slot + p.sum_pitch, alone);
    const NormPart<TS, kShifted> dsum(kAdd ? norm_at<TS>(p, kDsum, place) : nullptr, begin,
                                      kAdd && p.has_dsum ? count : 0, slot + p.sum_pitch + p.pitch, alone);
    if (lane == 0) {
      mbarrier_expect(full, s.run.middle + dy.run.middle + (kAdd ? dsum.run.middle : 0));
      s.load(full);
      dy.load(full);
      if constexpr (kAdd) dsum.load(full);
    }
    if (!kShifted || !alone) return;
    s.load_ends(lane);
    dy.load_ends(lane);
    if constexpr (kAdd) dsum.load_ends(lane);
  }

  // A row's rstd is fetched two rows before it is needed.
  __device__ __forceinline__ float rstd_of(int row) const {
    return has_dy() && row < p.rows ? p.rstd[row * p.rstd_stride] : 0.f;
  }
  __device__ __forceinline__ void start(int first) {
    next_rstd = rstd_of(first);
    later_rstd = rstd_of(first + p.groups);
    if constexpr (kShifted) {
      const NormBackwardRow<TX, TS, kAdd> row(p, first);
      grid = p.wants_dx          ? Grid::template of<TX>(this->template part<TX>(row.dx), count)
             : p.wants_dresidual ? Grid::template of<TS>(this->template part<TS>(row.dresidual), count)
                                 : Grid::template of<TS>(this->template part<TS>(row.s), count);
      this->whole = has_dy();
      this->template reads<TS>(0, row.s);
      this->template reads<TX>(1, row.dy);
      if constexpr (kAdd) this->template reads<TS>(2, p.has_dsum ? row.dsum : row.s);
      this->single([&](int j, bool) { norm_factors<TW, 1>(p, begin + j, single_w); });
    } else {
      grid = Grid::template of<TX>(nullptr, count);
    }
    this->each_vector([&](int v, int j) {
      const Elements<TW, N> raw = this->template weights<TW>(j);
#pragma unroll
      for (int i = 0; i < N; ++i) w[v][i] = norm_factor(p, raw, i);
    });
  }
  __device__ __forceinline__ void turn(int row) {
    rstd = next_rstd;
    next_rstd = later_rstd;
    later_rstd = rstd_of(row + 2 * p.groups);
  }

  struct Row {
    const char *s, *dy, *dsum;
  };
  __device__ __forceinline__ Row row_in(const char* slot) const {
    return {this->placed(0, slot), this->placed(1, slot + p.sum_pitch),
            this->placed(2, slot + p.sum_pitch + p.pitch)};
  }
  // What is absent is read too, and not used: with conditions here, the compiler keeps more in registers.
  template <bool kWithDsum, int M, bool kWhole>
  static __device__ __forceinline__ NormGradients<TX, TS, kAdd, M> read(const Row& from, int column) {
    NormGradients<TX, TS, kAdd, M> g;
    g.s = norm_shared<TS, M, kWhole>(from.s + column * static_cast<int>(sizeof(TS)));
    g.dy = norm_shared<TX, M, kWhole>(from.dy + column * static_cast<int>(sizeof(TX)));
    if constexpr (kAdd && kWithDsum)
      g.dsum = norm_shared<TS, M, kWhole>(from.dsum + column * static_cast<int>(sizeof(TS)));
    return g;
  }
  __device__ __forceinline__ float sum(const char* slot, int) {
    if (!has_dy()) return 0;
    float sum = 0;
    const Row from = row_in(slot);
    this->by_fit([&](auto whole) {
      this->each_vector([&](int v, int j) {
        sum += norm_products<TX, TS, kAdd, N>(read<false, N, decltype(whole)::value>(from, j), w[v],
                                              next_rstd, dweight[v]);
      });
      this->single([&](int j, bool on) {
        const float part = norm_products<TX, TS, kAdd, 1>(read<false, 1, true>(from, j), single_w, next_rstd,
                                                          single_dweight);
        sum += on ? part : 0;
      });
    });
    return sum;
  }
  __device__ __forceinline__ void write(const char* slot, int row, float sum) {
    if (!p.wants_dx && !p.wants_dresidual) return;
    const float slope = norm_slope(p, sum, rstd);
    const NormBackwardRow<TX, TS, kAdd> to(p, row);
    const Row from = row_in(slot);
    this->by_fit([&](auto whole) {
      this->each_vector([&](int v, int j) {
        to.template finish<kShifted && kAdd>(p, begin + j, read<true, N, decltype(whole)::value>(from, j),
                                             w[v], rstd, slope);
      });
      this->single([&](int j, bool on) {
        const auto g = read<true, 1, true>(from, j);
        if (on) to.template finish<true>(p, begin + j, g, single_w, rstd, slope);
      });
    });
  }
  // Once the CTA's last products are in its sums: its partials.
  __device__ __forceinline__ void summed() {
    if (!p.wants_partials) return;
    float* const partial = p.partials + norm_partial_at<kShifted>(p, this->group()) + begin;
    this->each_vector([&](int v, int j) { norm_store_sums<N>(partial + j, dweight[v]); });
    this->single([&](int j, bool on) {
      if (on) partial[j] = single_dweight[0];
    });
    arrive();
  }
  __device__ __forceinline__ void arrive() { dweight_finish.arrive(p); }
  __device__ __forceinline__ void finish() { dweight_finish.template finish<kShifted>(p); }
};

template <class Direction, bool kShifted>
__device__ __forceinline__ void norm_ring(const NormParams& p) {
  extern __shared__ __align__(128) char slots[];
  __shared__ NormRing ring;
  Direction d(p, ring, slots);
  const int warps = d.warps();
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.slots; ++i) {
      mbarrier_init(ring.full + i, kShifted ? 32 : 1);
      mbarrier_init(ring.empty + i, warps);
    }
    for (int i = 0; i < kNormPosts; ++i) mbarrier_init(ring.posted + i, p.cluster > 1 ? 1 : warps);
    mbarrier_init_fence();
  }
  if (p.cluster > 1)
    cluster_barrier();  // all of it has begun, and can be written to
  else
    __syncthreads();

  const int first = d.group(), step = p.groups, bytes = d.slot_bytes();
  if (static_cast<int>(threadIdx.x) >= warps * 32) {
    int i = 0;
    uint32_t parity = 1;
    for (int row = first; row < p.rows && (kShifted || threadIdx.x % 32 == 0); row += step) {
      mbarrier_wait(ring.empty + i, parity);
      d.load(slots + i * bytes, row, ring.full + i);
      // Each lane for what it has loaded itself: only the last row has such.
      if (kShifted && norm_alone(p, row))
        mbarrier_arrive(ring.full + i);
      else if (threadIdx.x % 32 == 0)
        mbarrier_arrive(ring.full + i, kShifted ? 32 : 1);
      if (++i == p.slots) i = 0, parity ^= 1;
    }
    d.arrive();
  } else {
    int summed = 0, written = 0;  // slots
    uint32_t parity = 0;
    const auto sum = [&](int row, int k) {
      mbarrier_wait(ring.full + summed, parity);
      d.post(d.sum(slots + summed * bytes, row), k);
      if (++summed == p.slots) summed = 0, parity ^= 1;
    };
    d.start(first);
    if (first < p.rows) sum(first, 0);
    for (int row = first, k = 0; row < p.rows; row += step, ++k) {
      d.turn(row);
      if (row + step < p.rows)
        sum(row + step, k + 1);
      else
        d.summed();
      d.write(slots + written * bytes, row, d.collect(k));
      __syncwarp();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.empty + written);
      if (++written == p.slots) written = 0;
    }
  }
  d.finish();
  // No CTA ends before all that others write to it is there: it has waited for every row's sums.
}

}  // namespace brim::cuda
