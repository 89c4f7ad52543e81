// No exception crosses the C interface: what one says becomes the error of the thread.

#ifndef WARPLOOM_EMULATOR_DRIVER_GUARD_H_
#define WARPLOOM_EMULATOR_DRIVER_GUARD_H_

#include <exception>
#include <string>
#include <type_traits>

#include "emulator/driver/session.h"

namespace warploom::emulator {

inline void note_exception(const char* text) noexcept {
  try {
    Session::set_error(std::string("warploom emulator: ") + text);
  } catch (...) {  // there is no memory for the text, either
  }
}

// The result of f(), or `failed` if it throws.
template <class Result, class F>
Result guarded(Result failed, F f) noexcept {
  try {
    return f();
  } catch (const std::exception& error) {
    note_exception(error.what());
  } catch (...) {
    note_exception("an exception of an unknown kind");
  }
  if constexpr (std::is_same_v<Result, int>) Session::set_error_code(failed);
  return failed;
}

// A call that fails with `code`, and why.
inline int fail(int code, const std::string& why) {
  Session::set_error("warploom emulator: " + why);
  Session::set_error_code(code);
  return code;
}

// `code` if what was done did not go well; the session knows why.
inline int code_of(bool went_well, int code) {
  if (went_well) return 0;
  Session::set_error_code(code);
  return code;
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_GUARD_H_
