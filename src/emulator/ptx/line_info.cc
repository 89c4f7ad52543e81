#include "emulator/ptx/line_info.h"

#include <climits>
#include <string>

namespace warploom::emulator::ptx {
namespace {

// Calls that the compiler inlined into each other; a chain that is longer loops.
constexpr int kMostInlined = 256;

int number(Cursor& cursor) {
  return static_cast<int>(cursor.number_within("a line or file", 0, INT_MAX));
}

}  // namespace

void parse_file(Cursor& cursor, Module& module) {
  cursor.next();
  auto index = number(cursor);
  if (cursor.peek().kind != Token::kString) cursor.fail("the name of a file");
  int line = cursor.line();
  module.files[index] = std::string(cursor.next().text);
  if (cursor.line() == line) cursor.skip_line();  // time stamp and size
}

LineInfo::Position LineInfo::position(Cursor& cursor) {
  auto file = number(cursor);
  auto line = number(cursor);
  return {file, line, number(cursor)};
}

void LineInfo::parse_location(Cursor& cursor) {
  int line = cursor.next().line;
  Position inner = position(cursor);
  while (cursor.line() == line && cursor.peek().kind != Token::kEnd) {
    if (cursor.next().is("inlined_at")) callers_[inner] = position(cursor);
  }
  Position outer = inner;
  for (int depth = 0; depth < kMostInlined; ++depth) {
    auto caller = callers_.find(outer);
    if (caller == callers_.end()) break;
    outer = caller->second;
  }
  origin_ = {std::get<0>(inner), std::get<1>(inner)};
  outer_origin_ = {std::get<0>(outer), std::get<1>(outer)};
}

}  // namespace warploom::emulator::ptx
