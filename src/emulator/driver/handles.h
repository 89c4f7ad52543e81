// What the driver gives out as handles: numbers that are given once, so that a handle of an object
// that is gone is refused, and never leads to other memory.

#ifndef WARPLOOM_EMULATOR_DRIVER_HANDLES_H_
#define WARPLOOM_EMULATOR_DRIVER_HANDLES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace warploom::emulator {

// Held while any table of handles is read or changed; for driver/fork_guard.h.
std::mutex& handles_mutex();
// A number that no handle has had. The mutex has to be held.
uintptr_t next_handle();

template <class T>
class Handles {
 public:
  void* add(std::shared_ptr<T> object) {
    std::lock_guard<std::mutex> lock(handles_mutex());
    const uintptr_t handle = next_handle();
    objects_.emplace(handle, std::move(object));
    return reinterpret_cast<void*>(handle);
  }

  // nullptr if there is none.
  std::shared_ptr<T> find(const void* handle) const {
    std::lock_guard<std::mutex> lock(handles_mutex());
    auto entry = objects_.find(reinterpret_cast<uintptr_t>(handle));
    return entry == objects_.end() ? nullptr : entry->second;
  }

  // Returns what it was; nullptr if there is none.
  std::shared_ptr<T> remove(const void* handle) {
    std::lock_guard<std::mutex> lock(handles_mutex());
    auto entry = objects_.find(reinterpret_cast<uintptr_t>(handle));
    if (entry == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(entry->second);
    objects_.erase(entry);
    return object;
  }

 private:
  std::map<uintptr_t, std::shared_ptr<T>> objects_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_HANDLES_H_
