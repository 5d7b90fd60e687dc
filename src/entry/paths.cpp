#include "entry/paths.h"

#include "cpu/isa.h"
#include "entry/entry.h"

namespace brim::entry {
namespace {

// Every instruction set that bodies are compiled for has a fused multiply-add but the x86-64 of 2009.
constexpr bool has_fused_multiply_add(cpu::Isa isa) { return isa != cpu::Isa::x86_64_v2; }

}  // namespace

std::vector<Path> paths(brim_backend backend, brim_op op) {
  std::vector<Path> result;
  if (brim_backend_status(backend).code != BRIM_OK) return result;
  switch (backend) {
    case BRIM_BACKEND_CPU:
      for (int i = 0; i < cpu::kIsaCount; ++i) {
        const auto isa = static_cast<cpu::Isa>(i);
        if (cpu::isa_present(isa)) result.push_back({cpu::isa_name(isa), has_fused_multiply_add(isa)});
      }
      break;
    case BRIM_BACKEND_CUDA:
      for (const char* const* form = op_forms(backend, op); form && *form; ++form)
        result.push_back({*form, true});
      break;
    case BRIM_BACKEND_REFERENCE: result.push_back({"reference", false}); break;
    default: break;
  }
  return result;
}

}  // namespace brim::entry
