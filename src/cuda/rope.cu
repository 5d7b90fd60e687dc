// RoPE's plain form: serves every valid call on every chip.
//
// A thread keeps its column (rope_index.h), so that a token's cos and sin sit in its registers while it goes
// through its heads of q and k. The three pairings differ in the addresses of a column's two vectors and in
// which of their 2N elements form a pair.
#include <cuda_runtime.h>

#include <type_traits>

#include "cuda/device/rope.cuh"
#include "cuda/kernel_table.h"
#include "cuda/rope.h"
#include "cuda/runtime.h"

namespace brim::cuda {
namespace {

// Addresses and byte strides of q or k.
struct Heads {
  const char* in;
  char* out;
  ops::RopeStrides from, to;
};

struct Params {
  RopeLaunch launch;
  Heads q, k;
  RopeTables tables;
  bool has_sections, sections_interleaved;
  int32_t sections[3];
};

// Columns of cos or sin one by one: with any stride between them, and with sections.
template <class Table, int M, int N>
__device__ __forceinline__ void load_scalar_columns(const Params& p, const char* row,
                                                    const ops::RopeTableStrides& s, int64_t first,
                                                    float (&out)[N], int at) {
#pragma unroll
  for (int i = 0; i < M; ++i) {
    const int64_t j = first + i;
    const int axis = p.has_sections ? ops::rope_section_axis(p.sections, p.sections_interleaved, j) : 0;
    const auto v = load_constant<sizeof(Table)>(row + (axis * s.axis + j * s.column) * sizeof(Table));
    out[at + i] = widen<Table>(v, 0);
  }
}

struct LoadColumns {
  const Params& p;
  template <class Table, int M, int N>
  __device__ __forceinline__ void load(const char* cos, const char* sin, int64_t first, float (&c)[N],
                                       float (&s)[N], int at) const {
    if (p.launch.vector_tables) {
      load_vector_columns<Table, M>(cos, first, c, at);
      load_vector_columns<Table, M>(sin, first, s, at);
    } else {
      load_scalar_columns<Table, M>(p, cos, p.tables.cos_strides, first, c, at);
      load_scalar_columns<Table, M>(p, sin, p.tables.sin_strides, first, s, at);
    }
  }
};

// base + head * stride. As one instruction of PTX, so that the compiler does not keep running sums for q and
// k, each way and each unrolled head: these cost more registers than the multiplication costs time.
template <class Char>
__device__ __forceinline__ Char* at_head(Char* base, int head, int64_t stride) {
  Char* result;
  asm("mad.lo.s64 %0, %1, %2, %3;" : "=l"(result) : "l"(static_cast<int64_t>(head)), "l"(stride), "l"(base));
  return result;
}

template <class T, int Bytes, int InOrder, int OutOrder>
__global__ void __launch_bounds__(kRopeThreads, rope_ctas_per_sm(Bytes))
    rope_plain(const __grid_constant__ Params p) {
  constexpr int N = Bytes / sizeof(T), U = rope_unroll(Bytes);
  constexpr PairOrder In{InOrder}, Out{OutOrder};
  const RopeLaunch& l = p.launch;
  const RopeTile tile = rope_tile(l, blockIdx.x);
  const int64_t column_index = tile.column + threadIdx.x;
  if (column_index >= l.columns) return;
  const RopeColumn column = rope_column(l, In, Out, N, column_index);
  const int head_lane = l.tokens_first ? threadIdx.z : threadIdx.y;
  const int token_lane = l.tokens_first ? threadIdx.y : threadIdx.z;

  const int64_t index = tile.token + token_lane;
  if (index >= l.tokens) return;
  const RopeToken token = rope_token(l, index);

  // Where this column of the tile's first head is, or would be, in q and in k.
  const auto place = [&](auto* base, const ops::RopeStrides& s, int64_t head, int64_t element) {
    return base + token.batch * s.batch + token.place * s.seq + head * s.head +
           element * (N == 1 ? s.dim : static_cast<int64_t>(sizeof(T)));
  };
  const char* q_in = place(p.q.in, p.q.from, tile.head, column.in_first);
  const char* k_in = place(p.k.in, p.k.from, tile.head - l.q_heads, column.in_first);
  // From the first vector to the second. Only single elements may lie 2 GiB or more apart.
  using Step = std::conditional_t<N == 1, int64_t, int32_t>;
  const Step in_step = static_cast<Step>((column.in_second - column.in_first) * (N == 1 ? 1 : sizeof(T)));
  char* q_out = place(p.q.out, p.q.to, tile.head, column.out_first);
  char* k_out = place(p.k.out, p.k.to, tile.head - l.q_heads, column.out_first);
  const Step out_step = static_cast<Step>((column.out_second - column.out_first) * (N == 1 ? 1 : sizeof(T)));

  Raw<Bytes> a[U], b[U];
  const auto load_heads = [&](int head) {
#pragma unroll
    for (int u = 0; u < U; ++u, head += l.head_lanes) {
      if (head >= tile.heads) continue;
      const bool is_q = head < tile.q_heads;
      const char* in = at_head(is_q ? q_in : k_in, head, is_q ? p.q.from.head : p.k.from.head);
      a[u] = load_once<Bytes>(in);
      b[u] = load_once<Bytes>(in + (N > 1 ? in_step : in_step * (is_q ? p.q.from.dim : p.k.from.dim)));
    }
  };

  // The first heads' loads are on their way before those of cos and sin are waited for.
  int head = head_lane;
  load_heads(head);
  float c[N], s[N];
  if (column.rotates) {
    const RopeTables& tables = p.tables;
    const int64_t row = table_row(tables, token.batch, token.place);
    if (row < 0)
      no_angles(c, s);
    else
      load_angles<rope_split_column(In, Out, N)>(
          tables, token.batch * tables.cos_strides.batch + row * tables.cos_strides.row,
          token.batch * tables.sin_strides.batch + row * tables.sin_strides.row, column, c, s,
          LoadColumns{p});
  }

  while (true) {
#pragma unroll
    for (int u = 0; u < U; ++u, head += l.head_lanes) {
      if (head >= tile.heads) continue;
      if (column.rotates) rotate<T, Bytes, In, Out>(a[u], b[u], c, s);
      const bool is_q = head < tile.q_heads;
      char* out = at_head(is_q ? q_out : k_out, head, is_q ? p.q.to.head : p.k.to.head);
      store<Bytes>(out, a[u]);
      store<Bytes>(out + (N > 1 ? out_step : out_step * (is_q ? p.q.to.dim : p.k.to.dim)), b[u]);
    }
    if (head >= tile.heads) return;
    load_heads(head);
  }
}

constexpr auto kKernels = kernel_table<kRopeVariants.size()>([](auto index) {
  constexpr RopeVariant v = kRopeVariants[decltype(index)::value];
  return rope_plain<typename Element<v.dtype>::type, v.vector_bytes, static_cast<int>(v.in),
                    static_cast<int>(v.out)>;
});

ops::RopeStrides in_bytes(const ops::RopeStrides& s, brim_dtype dtype) {
  const int64_t size = core::element_size(dtype);
  return {s.batch * size, s.seq * size, s.head * size, s.dim * size};
}

Params make_params(const brim_rope_args& args, const ops::RopeProblem& problem, const RopeLaunch& launch) {
  Params p{};
  p.launch = launch;
  const brim_dtype dtype = launch.variant.dtype;
  p.q = {static_cast<const char*>(args.q.data), static_cast<char*>(args.q_out.data),
         in_bytes(problem.q, dtype), in_bytes(problem.q_out, dtype)};
  p.k = {static_cast<const char*>(args.k.data), static_cast<char*>(args.k_out.data),
         in_bytes(problem.k, dtype), in_bytes(problem.k_out, dtype)};
  p.tables = make_rope_tables(args, problem);
  p.has_sections = problem.has_sections;
  p.sections_interleaved = problem.sections_interleaved;
  for (int i = 0; i < 3; ++i) p.sections[i] = problem.sections[i];
  return p;
}

}  // namespace

Status rope_launch_failure(const char* op, const brim_rope_args& args, int error) {
  char doing[384];
  std::snprintf(doing, sizeof doing, "launching on cuda:%d, q %s, k %s", args.q.device_index,
                core::shape_text(args.q).text,
                core::present(args.k) ? core::shape_text(args.k).text : "absent");
  return cuda_failure(op, static_cast<cudaError_t>(error), doing);
}

Status launch_rope(const char* op, const brim_rope_args& args, const ops::RopeProblem& problem,
                   const RopePlan& plan) {
  if (plan.launches == 0) return core::success();
  const DeviceGuard guard(args.q.device_index);
  cudaError_t error = guard.error();
  for (int i = 0; i < plan.launches && error == cudaSuccess; ++i) {
    const RopeLaunch& l = plan.launch[i];
    Params params = make_params(args, problem, l);
    void* values[] = {&params};
    const dim3 threads = l.tokens_first ? dim3(l.columns_per_tile, l.token_lanes, l.head_lanes)
                                        : dim3(l.columns_per_tile, l.head_lanes, l.token_lanes);
    // The returned error is this launch's own or that of a lost context; cudaGetLastError could be somebody
    // else's.
    error = cudaLaunchKernel(reinterpret_cast<const void*>(kKernels[rope_variant_index(l.variant)]),
                             dim3(static_cast<unsigned>(rope_blocks(l))), threads, values, 0,
                             static_cast<cudaStream_t>(args.run.stream));
  }
  return error == cudaSuccess ? core::success() : rope_launch_failure(op, args, error);
}

}  // namespace brim::cuda
