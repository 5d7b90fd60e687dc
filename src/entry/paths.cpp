#include "entry/paths.h"

#include "brim/brim.h"

namespace brim::entry {

std::vector<Path> paths(brim_backend backend) {
  std::vector<Path> result;
  if (brim_backend_status(backend).code != BRIM_OK) return result;
  switch (backend) {
    case BRIM_BACKEND_CPU: break;
    case BRIM_BACKEND_CUDA: result.push_back({"plain", true}); break;
    case BRIM_BACKEND_REFERENCE: result.push_back({"reference", false}); break;
    default: break;
  }
  return result;
}

}  // namespace brim::entry
