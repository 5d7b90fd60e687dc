#include "core/status.h"

#include <cstdarg>
#include <cstdio>

namespace brim::core {

Status failure(brim_code code, const char* format, ...) {
  Status s;
  s.code = code;
  va_list values;
  va_start(values, format);
  std::vsnprintf(s.message, sizeof s.message, format, values);
  va_end(values);
  return s;
}

}  // namespace brim::core
