// What a cache would pass to its kernels in a step: all that a graph of the step depends on.
//
// The index arrays of a cache (where the pages of each sequence are, how long it is) are views of
// one buffer, whose offsets change with the number of pages. A graph reads copies of them at
// offsets of its own, which change as seldom as the arrays' capacities do.

#ifndef WARPLOOM_GRAPH_RECORD_H_
#define WARPLOOM_GRAPH_RECORD_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "graph/value.h"
#include "graph/watch.h"

namespace warploom::graph {

// A number of indices that at least so many get, so that it seldom changes: at most a quarter more.
int64_t capacity_of(int64_t indices);

class Record : public Watcher {
 public:
  // Bytes that are contiguous in a cache's buffer and among the copies.
  struct Chunk {
    const char* from;
    uint64_t to;
    uint64_t bytes;
  };

  // Where an index array is among the copies.
  struct Place {
    uint64_t offset = 0;
    bool grows = false;
  };

  void call(const CacheKernel& kernel, PackedArgs arguments, Any* result) override;
  void allocate(const Function& stock, PackedArgs arguments, Any* result) override;
  // A result of a call of the cache, which other kernels may read.
  void add_result(const Any& result);
  // Lays the copies out. Nothing is added afterwards.
  void finish();

  // Equal words: the same kernels would be launched with the same arguments, copies for arrays.
  const Words& key() const { return words_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  // Of all copies.
  uint64_t bytes() const { return bytes_; }
  // The numbers of the kernels in the order of their calls.
  const std::vector<int64_t>& kernels() const { return kernels_; }
  // Of an index array that was recorded, else nullptr.
  const Place* find(const DLTensor& array) const;
  // False if something was passed that cannot be compared.
  bool is_complete() const { return is_complete_; }

  static bool is_index_array(const DLTensor& tensor);
  // Whether an argument of a kernel gets a capacity: those are indices of pages.
  static bool grows(const CacheKernel& kernel, int argument, const DLTensor& tensor);

 private:
  struct Array {
    uint64_t bytes = 0;
    uint64_t capacity = 0;
    uint64_t number = 0;
    Place place;
  };

  uint64_t add_array(const DLTensor& array, bool grows);

  std::map<std::pair<const char*, uint64_t>, Array> arrays_;  // by buffer and offset
  Words words_;
  std::vector<int64_t> kernels_;
  std::vector<Chunk> chunks_;
  uint64_t bytes_ = 0;
  bool is_complete_ = true;
};

}  // namespace warploom::graph

#endif  // WARPLOOM_GRAPH_RECORD_H_
