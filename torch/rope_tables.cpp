// torch.ops.brim.rope_tables: brim.rope_tables' C++ side. The tables are made on the CPU.
#include <torch/csrc/stable/library.h>

#include <tuple>
#include <vector>

#include "convert.h"

namespace {

using brim::binding::Tensor;
using Factors = std::optional<std::vector<double>>;

Tensor empty_table(int64_t rows, int64_t columns, torch::headeronly::ScalarType dtype) {
  const int64_t shape[] = {rows, columns}, strides[] = {columns, 1};
  const int32_t type = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
  AtenTensorHandle made;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(2, shape, strides, type, aoti_torch_device_type_cpu(), 0, &made));
  return Tensor(made);
}

const double* checked(const char* name, const Factors& factors, int64_t columns) {
  if (!factors) return nullptr;
  if (static_cast<int64_t>(factors->size()) != columns)
    throw std::invalid_argument("rope_tables: " + std::string(name) + " has " +
                                std::to_string(factors->size()) +
                                " numbers, expected rotary_dim/2 = " + std::to_string(columns));
  return factors->data();
}

std::tuple<Tensor, Tensor> rope_tables(int64_t max_position, int64_t rotary_dim, bool halves_repeated,
                                       double base, int64_t seq_len, int64_t rule, double factor,
                                       int64_t max_position_embeddings,
                                       int64_t original_max_position_embeddings, double attention_factor,
                                       double beta_fast, double beta_slow, double mscale,
                                       double mscale_all_dim, bool truncate, double low_freq_factor,
                                       double high_freq_factor, const Factors& short_factor,
                                       const Factors& long_factor, torch::headeronly::ScalarType dtype) {
  if (max_position < 0 || rotary_dim < 0) throw std::invalid_argument("rope_tables: a size is negative");
  const int64_t columns = halves_repeated ? rotary_dim : rotary_dim / 2;
  Tensor cos = empty_table(max_position, columns, dtype), sin = empty_table(max_position, columns, dtype);
  brim::RopeTablesArgs args;
  args.cos = brim::binding::output(cos);
  args.sin = brim::binding::output(sin);
  args.rotary_dim = rotary_dim;
  args.base = base;
  args.seq_len = seq_len;
  args.rule = static_cast<brim_rope_scaling_rule>(rule);
  args.truncate_off = !truncate;
  args.factor = factor;
  args.max_position_embeddings = max_position_embeddings;
  args.original_max_position_embeddings = original_max_position_embeddings;
  args.attention_factor = attention_factor;
  args.beta_fast = beta_fast;
  args.beta_slow = beta_slow;
  args.mscale = mscale;
  args.mscale_all_dim = mscale_all_dim;
  args.low_freq_factor = low_freq_factor;
  args.high_freq_factor = high_freq_factor;
  args.short_factor = checked("short_factor", short_factor, rotary_dim / 2);
  args.long_factor = checked("long_factor", long_factor, rotary_dim / 2);
  brim::binding::raise(brim::rope_tables(args));
  return {cos, sin};
}

STABLE_TORCH_LIBRARY_FRAGMENT(brim, m) {
  m.def(
      "rope_tables(int max_position, int rotary_dim, *, bool halves_repeated, float base, int seq_len, int "
      "rule, "
      "float factor, int max_position_embeddings, int original_max_position_embeddings, "
      "float attention_factor, float beta_fast, float beta_slow, float mscale, float mscale_all_dim, "
      "bool truncate, float low_freq_factor, float high_freq_factor, float[]? short_factor, "
      "float[]? long_factor, ScalarType dtype) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(brim, CompositeExplicitAutograd, m) {
  m.impl("rope_tables", TORCH_BOX(&rope_tables));
}

}  // namespace
