#include "terminal.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

namespace brim::cli {
namespace {

std::string in_colour(const char* code, const std::string& text) {
  static const bool colours = isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR");
  return colours ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
}

// Characters on the screen: colour codes take no room.
size_t width(const std::string& cell) {
  size_t count = 0;
  for (size_t i = 0; i < cell.size(); ++i) {
    if (cell[i] == '\x1b')
      i = cell.find('m', i);
    else
      ++count;
  }
  return count;
}

bool is_number(const std::string& cell) {
  return !cell.empty() && (cell[0] == '-' || (cell[0] >= '0' && cell[0] <= '9')) &&
         cell.find_first_not_of("0123456789.,e+-% ") == std::string::npos;
}

}  // namespace

std::string green(const std::string& text) { return in_colour("32", text); }
std::string red(const std::string& text) { return in_colour("31", text); }
std::string bold(const std::string& text) { return in_colour("1", text); }

void Table::print() const {
  std::vector<size_t> widths(rows_[0].size());
  std::vector<bool> numbers(rows_[0].size(), true);
  for (size_t r = 0; r < rows_.size(); ++r)
    for (size_t i = 0; i < rows_[r].size(); ++i) {
      widths[i] = std::max(widths[i], width(rows_[r][i]));
      if (r > 0) numbers[i] = numbers[i] && (rows_[r][i].empty() || is_number(rows_[r][i]));
    }
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows_[r].size(); ++i) {
      const std::string padding(widths[i] - width(rows_[r][i]), ' ');
      const std::string cell = r == 0 ? bold(rows_[r][i]) : rows_[r][i];
      line += i ? "  " : "";
      line += numbers[i] ? padding + cell : i + 1 == rows_[r].size() ? cell : cell + padding;
    }
    fmt::print("{}\n", line);
  }
}

void Progress::show(const std::string& text) {
  static const bool terminal = isatty(STDERR_FILENO);
  if (!terminal) return;
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (shown_) fmt::print(stderr, "\r\x1b[K");
  shown_ = false;
}

}  // namespace brim::cli
