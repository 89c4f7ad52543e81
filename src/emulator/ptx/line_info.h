// .file and .loc directives: which line of the CUDA source an instruction was made from.

#ifndef WARPLOOM_EMULATOR_PTX_LINE_INFO_H_
#define WARPLOOM_EMULATOR_PTX_LINE_INFO_H_

#include <map>
#include <tuple>

#include "emulator/ptx/cursor.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator::ptx {

// ".file 1 "kernel.cu", 1700000000, 4096"
void parse_file(Cursor& cursor, Module& module);

// The location that the instructions of one function have at a point of its text.
class LineInfo {
 public:
  // ".loc 1 12 5" or ".loc 1 7 3, function_name $L__info_string0, inlined_at 1 12 5"
  void parse_location(Cursor& cursor);

  SourceLine origin() const { return origin_; }
  SourceLine outer_origin() const { return outer_origin_; }

 private:
  using Position = std::tuple<int, int, int>;  // file, line, column

  static Position position(Cursor& cursor);

  SourceLine origin_;
  SourceLine outer_origin_;
  // Where the code at a position was inlined: calls nest, and a directive names one level only.
  std::map<Position, Position> callers_;
};

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_LINE_INFO_H_
