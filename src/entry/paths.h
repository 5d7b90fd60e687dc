// The forms that each backend can run an op in, for those who want every one of them checked or timed.
#pragma once

#include <vector>

#include "brim/brim.h"

namespace brim::entry {

struct Path {
  const char* name;  // as in brim_run.path
  bool fused;        // has a fused multiply-add, so that the bits promised for those hold
};

// Those of an entry that this machine can run; empty when the backend is not available.
std::vector<Path> paths(brim_backend backend, brim_op op);

}  // namespace brim::entry
