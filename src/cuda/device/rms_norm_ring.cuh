// The norms through a ring of rows in shared memory (Hopper and newer): backward, and forward of long rows.
//
// Persistent CTAs, or clusters of them that share each row. One warp loads rows into the ring's slots by bulk copies and
// runs ahead; the others sum row k+1 while the sums of row k, of all warps and CTAs, come together, and then write row k:
// nobody waits for a reduction. Each thread has the same columns of every row, their weights and their sums for dweight in
// registers. kShifted: rows need not begin at multiples of 16 bytes (rms_norm_bulk.cuh).
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

  __device__ __forceinline__ NormRingThread(const NormParams& params, NormRing& r, char* memory)
      : p(params),
        ring(r),
        slots(memory),
        rank(params.cluster > 1 ? blockIdx.x % params.cluster : 0),
        begin(rank * params.share),
        count(max(min(params.share, static_cast<int>(params.hidden) - begin), 0)) {}

  __device__ __forceinline__ int group() const { return p.cluster > 1 ? blockIdx.x / p.cluster : blockIdx.x; }
  static __device__ __forceinline__ int warps() { return (blockDim.x - 32) / 32; }

  // use(v, column, left) for this thread's vectors: its place in a share, and how many columns are left from there. Where
  // kShifted all lanes of a warp go on where one has an element. The thread's place is opaque where there are many vectors,
  // or the compiler would keep what follows from it for each in registers, from row to row; so is the order, or it would read
  // them all first.
  template <class Use>
  __device__ __forceinline__ void each_vector(Use use) const {
    int thread = threadIdx.x;
    if (V > 2) asm volatile("" : "+r"(thread));
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int column = (v * (static_cast<int>(blockDim.x) - 32) + thread) * N;
      if ((kShifted ? column - thread % 32 * N : column) >= count) continue;
      if (V > 2) asm volatile("" ::: "memory");
      use(v, column, kShifted ? count - column : N);
    }
  }

  // Where a part of row `row` begins in shared memory at `at`.
  template <class T>
  __device__ __forceinline__ const char* placed(const char* at, const char* row) const {
    if constexpr (kShifted)
      return at + ((reinterpret_cast<uintptr_t>(row) + begin * static_cast<int64_t>(sizeof(T))) & 15);
    else
      return at;
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
  using Base::begin, Base::count, Base::p;
  Elements<TW, N> w[V];

  __device__ __forceinline__ int slot_bytes() const { return p.pitch + (kAdd ? p.sum_pitch : 0); }
  __device__ __forceinline__ void load(char* slot, int row, uint64_t* full) const {
    const int lane = threadIdx.x % 32;
    const NormRow place = norm_row(p, row);
    const NormPart<TX, kShifted> x(norm_at<TX>(p, kX, place), begin, count, slot);
    const NormPart<TS, kShifted> residual(kAdd ? norm_at<TS>(p, kResidual, place) : nullptr, begin,
                                          kAdd ? count : 0, slot + p.pitch);
    if (lane == 0) {
      mbarrier_expect(full, x.run.middle + (kAdd ? residual.run.middle : 0));
      x.load(full);
      if constexpr (kAdd) residual.load(full);
    }
    x.load_ends(lane);
    if constexpr (kAdd) residual.load_ends(lane);
  }

  __device__ __forceinline__ void start(int) {
    this->each_vector([&](int v, int j, int left) { w[v] = norm_load_weight<TW, N>(p, begin + j, left); });
  }
  __device__ __forceinline__ void turn(int) {}

  // S of a row's columns. The sum with the residual is formed twice, which costs less than to keep it.
  struct Row {
    const NormRow place;
    const char *x, *residual;
  };
  __device__ __forceinline__ Row row_of(const char* slot, int row) const {
    const NormRow place = norm_row(p, row);
    return {place, this->template placed<TX>(slot, norm_at<TX>(p, kX, place)),
            kAdd ? this->template placed<TS>(slot + p.pitch, norm_at<TS>(p, kResidual, place)) : nullptr};
  }
  static __device__ __forceinline__ Elements<TS, N> read(const Row& from, int column, int left) {
    if (kShifted && left <= 0) column = 0;
    if constexpr (kAdd)
      return norm_add<TX, TS, true, N>(
          norm_shared<TX, N, kShifted>(from.x + column * static_cast<int>(sizeof(TX)), left),
          norm_shared<TS, N, kShifted>(from.residual + column * static_cast<int>(sizeof(TS)), left));
    else
      return norm_shared<TS, N, kShifted>(from.x + column * static_cast<int>(sizeof(TS)), left);
  }
  __device__ __forceinline__ float sum(const char* slot, int row) {
    const Row from = row_of(slot, row);
    char* const to =
        kAdd ? norm_at<TS>(p, kSum, from.place) + begin * static_cast<int64_t>(sizeof(TS)) : nullptr;
    float squares = 0;
    this->each_vector([&](int, int j, int left) {
      const Elements<TS, N> s = read(from, j, left);
      if constexpr (kAdd) norm_put<TS, N, kShifted>(to + j * static_cast<int64_t>(sizeof(TS)), s, left);
      squares += norm_squares(s);
    });
    return squares;
  }
  __device__ __forceinline__ void write(const char* slot, int row, float squares) {
    const Row from = row_of(slot, row);
    const float rstd = norm_rstd(p, squares);
    if (p.saves_rstd && threadIdx.x == 0 && this->rank == 0) p.rstd[row * p.rstd_stride] = rstd;
    char* const y = norm_at<TX>(p, kY, from.place) + begin * static_cast<int64_t>(sizeof(TX));
    this->each_vector([&](int v, int j, int left) {
      norm_put<TX, N, kShifted>(y + j * static_cast<int64_t>(sizeof(TX)),
                                norm_scaled<TX>(p, read(from, j, left), rstd, w[v]), left);
    });
  }
  __device__ __forceinline__ void finish() {}
};

template <class TX, class TS, class TW, bool kAdd, int N, int V, bool kShifted>
struct NormRingBackward : NormRingThread<N, V, kShifted> {
  using Base = NormRingThread<N, V, kShifted>;
  using Base::Base;
  using Base::begin, Base::count, Base::p;
  float w[V][N], dweight[V][N] = {};
  float rstd = 0, next_rstd = 0, later_rstd = 0;

  __device__ __forceinline__ bool has_dy() const { return !kAdd || p.has_dy; }
  __device__ __forceinline__ int slot_bytes() const { return p.pitch + (kAdd ? 2 : 1) * p.sum_pitch; }
  __device__ __forceinline__ void load(char* slot, int row, uint64_t* full) const {
    const int lane = threadIdx.x % 32;
    const NormRow place = norm_row(p, row);
    const NormPart<TS, kShifted> s(norm_at<TS>(p, kS, place), begin, has_dy() ? count : 0, slot);
    const NormPart<TX, kShifted> dy(norm_at<TX>(p, kDy, place), begin, has_dy() ? count : 0,
                                    slot + p.sum_pitch);
    const NormPart<TS, kShifted> dsum(kAdd ? norm_at<TS>(p, kDsum, place) : nullptr, begin,
                                      kAdd && p.has_dsum ? count : 0, slot + p.sum_pitch + p.pitch);
    if (lane == 0) {
      mbarrier_expect(full, s.run.middle + dy.run.middle + (kAdd ? dsum.run.middle : 0));
      s.load(full);
      dy.load(full);
      if constexpr (kAdd) dsum.load(full);
    }
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
    this->each_vector([&](int v, int j, int left) {
      const Elements<TW, N> raw = norm_load_weight<TW, N>(p, begin + j, left);
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
  __device__ __forceinline__ Row row_of(const char* slot, const NormBackwardRow<TX, TS, kAdd>& row) const {
    return {this->template placed<TS>(slot, row.s), this->template placed<TX>(slot + p.sum_pitch, row.dy),
            kAdd ? this->template placed<TS>(slot + p.sum_pitch + p.pitch, row.dsum) : nullptr};
  }
  // What is absent is read too, and not used: with conditions here, the compiler keeps more in registers.
  template <bool kWithDsum>
  static __device__ __forceinline__ NormGradients<TX, TS, kAdd, N> read(const Row& from, int column,
                                                                        int left) {
    if (kShifted && left <= 0) column = 0;
    NormGradients<TX, TS, kAdd, N> g;
    g.s = norm_shared<TS, N, kShifted>(from.s + column * static_cast<int>(sizeof(TS)), left);
    g.dy = norm_shared<TX, N, kShifted>(from.dy + column * static_cast<int>(sizeof(TX)), left);
    if constexpr (kAdd && kWithDsum)
      g.dsum = norm_shared<TS, N, kShifted>(from.dsum + column * static_cast<int>(sizeof(TS)), left);
    return g;
  }
  __device__ __forceinline__ float sum(const char* slot, int row) {
    if (!has_dy()) return 0;
    const Row from = row_of(slot, NormBackwardRow<TX, TS, kAdd>(p, row));
    float sum = 0;
    this->each_vector([&](int v, int j, int left) {
      sum += norm_products<TX, TS, kAdd, N>(read<false>(from, j, left), w[v], next_rstd, dweight[v]);
    });
    return sum;
  }
  __device__ __forceinline__ void write(const char* slot, int row, float sum) {
    if (!p.wants_dx && !p.wants_dresidual) return;
    const float slope = norm_slope(p, sum, rstd);
    const NormBackwardRow<TX, TS, kAdd> to(p, row);
    const Row from = row_of(slot, to);
    this->each_vector([&](int v, int j, int left) {
      to.template finish<kShifted>(p, begin + j, read<true>(from, j, left), w[v], rstd, slope, left);
    });
  }
  __device__ __forceinline__ void finish() {
    if (!p.wants_partials) return;
    float* const partial = p.partials + this->group() * p.hidden + begin;
    this->each_vector([&](int v, int j, int left) {
      norm_put<float, N, kShifted>(reinterpret_cast<char*>(partial + j), norm_narrow<float, N>(dweight[v]),
                                   left);
    });
  }
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
      mbarrier_arrive(ring.full + i);
      if (++i == p.slots) i = 0, parity ^= 1;
    }
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
      if (row + step < p.rows) sum(row + step, k + 1);
      d.write(slots + written * bytes, row, d.collect(k));
      __syncwarp();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.empty + written);
      if (++written == p.slots) written = 0;
    }
    d.finish();
  }
  // No CTA ends before all that others write to it is there: it has waited for every row's sums.
}

}  // namespace brim::cuda
