// Making a Status: the only place where messages are formatted.
#pragma once

#include "brim/status.h"

namespace brim::core {

inline Status success() {
  Status s;  // the message buffer is left unset but for its terminator: success is the hot path
  s.code = BRIM_OK;
  s.message[0] = '\0';
  return s;
}

[[gnu::cold, gnu::format(printf, 2, 3)]] Status failure(brim_code code, const char* format, ...);

}  // namespace brim::core

// Leaves the function with the first Status that is not success.
#define BRIM_TRY(expression)                                                            \
  do {                                                                                  \
    if (::brim::Status status_ = (expression); status_.code != BRIM_OK) return status_; \
  } while (0)
