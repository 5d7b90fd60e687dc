// What people see: aligned tables, colours where a terminal shows them, progress on one line of stderr.
#pragma once

#include <string>
#include <vector>

namespace brim::cli {

// `text` in colour when the standard output is a terminal and NO_COLOR is not set.
std::string green(const std::string& text);
std::string red(const std::string& text);
std::string bold(const std::string& text);

// Columns as wide as their widest cell; numbers stand to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() == 1; }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// One line on stderr that is written over; nothing at all when stderr is no terminal.
class Progress {
 public:
  ~Progress() { clear(); }
  void show(const std::string& text);
  void clear();

 private:
  bool shown_ = false;
};

}  // namespace brim::cli
