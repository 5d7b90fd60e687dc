// Model shapes: the built-in ones of models.json, and any Hugging Face config.json.
#pragma once

#include <string>
#include <vector>

#include "ops/model_shape.h"

namespace brim::harness {

std::vector<std::string> model_names();

// A built-in name, or the path of a config.json. std::runtime_error, with what is wrong in words, when it is
// neither or when the file lacks a field.
ops::ModelShape load_model(const std::string& name_or_path);

// The text of a config.json; `name` is for messages.
ops::ModelShape parse_model(const std::string& text, const std::string& name);

}  // namespace brim::harness
