#include "emulator/driver/graph.h"

#include <map>
#include <mutex>
#include <utility>

#include "emulator/driver/cuda_abi.h"

namespace warploom::emulator {
namespace {

struct Captures {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<Graph>> graphs;
};

Captures& captures() {
  static auto* captures = new Captures;  // never destroyed: streams outlive static objects
  return *captures;
}

}  // namespace

std::mutex& captures_mutex() { return captures().mutex; }

int Graph::replay() const {
  for (const Work& one : work) {
    if (int code = one(); code != abi::kSuccess) return code;
  }
  return abi::kSuccess;
}

bool begin_capture(void* stream) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  return stream != nullptr &&
         captures().graphs.try_emplace(stream, std::make_unique<Graph>()).second;
}

bool is_captured(void* stream) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  return captures().graphs.count(stream) != 0;
}

std::unique_ptr<Graph> end_capture(void* stream) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto entry = captures().graphs.find(stream);
  if (entry == captures().graphs.end()) return nullptr;
  std::unique_ptr<Graph> graph = std::move(entry->second);
  captures().graphs.erase(entry);
  return graph;
}

int submit(void* stream, Work work) {
  {
    std::lock_guard<std::mutex> lock(captures().mutex);
    auto entry = captures().graphs.find(stream);
    if (entry != captures().graphs.end()) {
      entry->second->work.push_back(std::move(work));
      return abi::kSuccess;
    }
  }
  return work();
}

}  // namespace warploom::emulator
