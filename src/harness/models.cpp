#include "harness/models.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace brim::harness {

extern const char* const kModelsJson;  // models.json, built in

namespace {

using nlohmann::ordered_json;

// What transformers assumes for a model type when its config.json does not say (0: nothing to assume).
struct TypeDefaults {
  const char* type;
  int64_t head_dim;
  double partial_rotary;  // share of a head that turns
  brim_rope_pairing pairing;
};
constexpr TypeDefaults kTypes[] = {
    {"cohere", 0, 1, BRIM_PAIRING_INTERLEAVED},
    {"cohere2", 0, 1, BRIM_PAIRING_INTERLEAVED},
    {"deepseek_v2", 0, 1, BRIM_PAIRING_INTERLEAVED},
    {"deepseek_v3", 0, 1, BRIM_PAIRING_TO_HALF},
    {"ernie4_5", 0, 1, BRIM_PAIRING_INTERLEAVED},
    {"gemma", 256, 1, BRIM_PAIRING_HALF},
    {"gemma2", 256, 1, BRIM_PAIRING_HALF},
    {"gemma3_text", 256, 1, BRIM_PAIRING_HALF},
    {"glm", 128, 0.5, BRIM_PAIRING_INTERLEAVED},
    {"glm4", 128, 0.5, BRIM_PAIRING_INTERLEAVED},
    {"gpt_neox", 0, 0.25, BRIM_PAIRING_HALF},
    {"gptj", 0, 1, BRIM_PAIRING_INTERLEAVED},
    {"helium", 0, 1, BRIM_PAIRING_INTERLEAVED},
    {"llama4_text", 128, 1, BRIM_PAIRING_INTERLEAVED},
    {"nemotron", 0, 0.5, BRIM_PAIRING_HALF},
    {"persimmon", 0, 0.5, BRIM_PAIRING_HALF},
    {"phi", 0, 0.5, BRIM_PAIRING_HALF},
    {"qwen3", 128, 1, BRIM_PAIRING_HALF},
    {"stablelm", 0, 0.25, BRIM_PAIRING_HALF},
};

TypeDefaults defaults_of(const std::string& type) {
  for (const TypeDefaults& t : kTypes)
    if (type == t.type) return t;
  return {"", 0, 1, BRIM_PAIRING_HALF};
}

// Fields of one config, with errors that name file and field. A null counts as absent, as in transformers.
class Config {
 public:
  Config(const ordered_json& fields, std::string file) : fields_(fields), file_(std::move(file)) {}

  bool has(const char* field) const { return fields_.contains(field) && !fields_[field].is_null(); }

  std::optional<int64_t> size(const char* field) const {
    if (!has(field)) return {};
    const ordered_json& value = fields_[field];
    if (!value.is_number_integer() || value.get<int64_t>() <= 0)
      throw error("field '{}' is {}, expected a positive whole number", field, value.dump());
    return value.get<int64_t>();
  }

  int64_t needed_size(const char* field) const {
    if (const auto value = size(field)) return *value;
    throw error("field '{}' is missing", field);
  }

  std::optional<double> number(const char* field) const {
    if (!has(field)) return {};
    if (!fields_[field].is_number())
      throw error("field '{}' is {}, expected a number", field, fields_[field].dump());
    return fields_[field].get<double>();
  }

  std::optional<std::string> text(const char* field) const {
    if (!has(field)) return {};
    if (!fields_[field].is_string())
      throw error("field '{}' is {}, expected text", field, fields_[field].dump());
    return fields_[field].get<std::string>();
  }

  // The object in `field`, or an empty one.
  Config object(const char* field) const {
    static const ordered_json kEmpty = ordered_json::object();
    if (!has(field)) return {kEmpty, file_};
    if (!fields_[field].is_object())
      throw error("field '{}' is {}, expected an object", field, fields_[field].dump());
    return {fields_[field], file_};
  }

  template <class... Values>
  std::runtime_error error(fmt::format_string<Values...> format, Values&&... values) const {
    return std::runtime_error(file_ + ": " + fmt::format(format, std::forward<Values>(values)...));
  }

 private:
  const ordered_json& fields_;
  std::string file_;
};

// transformers 5 keeps the parameters of RoPE in an object, of which models with two kinds of layers have one
// a kind.
Config rope_parameters(const Config& config) {
  const Config rope = config.object("rope_parameters");
  return rope.has("full_attention") ? rope.object("full_attention") : rope;
}

ops::ModelShape parse(const ordered_json& json, const std::string& name) {
  const Config whole(json, name);
  if (!json.is_object()) throw whole.error("expected a JSON object with the fields of a config.json");
  const Config c = whole.has("text_config") ? whole.object("text_config") : whole;
  const Config rope = rope_parameters(c);
  const TypeDefaults type = defaults_of(c.text("model_type").value_or(""));

  ops::ModelShape m;
  m.name = name;
  m.hidden = c.needed_size("hidden_size");
  m.heads = c.needed_size("num_attention_heads");
  m.vocab = c.needed_size("vocab_size");
  m.kv_heads = c.size("num_key_value_heads").value_or(m.heads);
  m.max_position = c.size("max_position_embeddings").value_or(0);
  m.pairing = type.pairing;
  m.theta = rope.number("rope_theta")
                .value_or(c.number("rope_theta").value_or(c.number("rotary_emb_base").value_or(m.theta)));
  if (const auto rope_dim = c.size("qk_rope_head_dim")) {
    // Multi-head latent attention: RoPE turns a part of its own of every query head, and one key part for all
    // heads.
    m.head_dim = m.rotary_dim = *rope_dim;
    m.kv_heads = 1;
    return m;
  }
  if (const auto head_dim = c.size("head_dim"))
    m.head_dim = *head_dim;
  else if (type.head_dim)
    m.head_dim = type.head_dim;
  else if (m.hidden % m.heads == 0)
    m.head_dim = m.hidden / m.heads;
  else
    throw c.error("field 'head_dim' is missing, and hidden_size {} is no multiple of num_attention_heads {}",
                  m.hidden, m.heads);
  const double share = rope.number("partial_rotary_factor")
                           .value_or(c.number("partial_rotary_factor")
                                         .value_or(c.number("rotary_pct").value_or(type.partial_rotary)));
  m.rotary_dim = c.size("rotary_dim").value_or(static_cast<int64_t>(static_cast<double>(m.head_dim) * share));
  if (m.rotary_dim < 2 || m.rotary_dim > m.head_dim || m.rotary_dim % 2)
    throw c.error("a rotary width of {} does not fit a head_dim of {}", m.rotary_dim, m.head_dim);
  return m;
}

ordered_json parse_json(const std::string& text, const std::string& name) {
  try {
    return ordered_json::parse(text);
  } catch (const std::exception& e) { throw std::runtime_error(name + ": not JSON: " + e.what()); }
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  const auto models = parse_json(kModelsJson, "models.json");  // must outlive the loop: items() refers to it
  for (const auto& [name, config] : models.items()) names.push_back(name);
  return names;
}

ops::ModelShape parse_model(const std::string& text, const std::string& name) {
  return parse(parse_json(text, name), name);
}

ops::ModelShape load_model(const std::string& name_or_path) {
  const ordered_json models = parse_json(kModelsJson, "models.json");
  if (models.contains(name_or_path)) return parse(models[name_or_path], name_or_path);
  if (!std::filesystem::exists(name_or_path))
    throw std::runtime_error(fmt::format("unknown model '{}', and no such file; known: {}", name_or_path,
                                         fmt::join(model_names(), ", ")));
  std::stringstream text;
  if (std::ifstream file(name_or_path);
      std::filesystem::is_directory(name_or_path) || !(text << file.rdbuf()))
    throw std::runtime_error(name_or_path + ": cannot be read");
  return parse_model(text.str(), name_or_path);
}

}  // namespace brim::harness
