#include "graph/call_graph.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <utility>

namespace warploom::graph {
namespace {

using tvm::ffi::Error;
using tvm::ffi::Object;
using tvm::ffi::ObjectRef;
using tvm::ffi::Tensor;

// At most, of a function and of a form; what was used longest ago goes.
constexpr size_t kMostForms = 64, kMostGraphs = 32;
// Bytes behind the copies of index arrays: kernels of TVM read a tile of an array before they ask
// how long it is, which the buffer of a cache, of 128 MiB, allows.
constexpr uint64_t kBehind = 1 << 16;

int current_device() {
  const CudaApi& api = CudaApi::get();
  int device = 0;
  api.check(api.get_device(&device), "cudaGetDevice");
  return device;
}

struct CudaAllocator {
  void AllocData(DLTensor* tensor) {
    const CudaApi& api = CudaApi::get();
    api.check(api.malloc(&tensor->data, std::max<uint64_t>(bytes_of(*tensor), 1)), "cudaMalloc");
  }
  void FreeData(DLTensor* tensor) { CudaApi::get().free(tensor->data); }
};

Tensor tensor_like(const DLTensor& one) {
  return Tensor::FromNDAlloc(CudaAllocator(), {one.shape, static_cast<size_t>(one.ndim)}, one.dtype,
                             one.device);
}

// Why calls with such arguments are no graphs, or nothing.
std::string hindrance(PackedArgs arguments, int device) {
  std::string why;
  for (int i = 0; i < arguments.size(); ++i) {
    visit(raw(arguments)[i], [&](const TVMFFIAny& one) {
      const DLTensor* tensor = tensor_of(one);
      if (tensor == nullptr || !why.empty()) return;
      const std::string name = "argument " + std::to_string(i);
      if (tensor->device.device_type != kCuda || tensor->device.device_id != device) {
        why = name + " is not on the current GPU; copy it there";
      } else if (!tvm::ffi::IsContiguous(*tensor)) {
        why = name + " is not contiguous; pass a compact copy";
      }
    });
  }
  return why;
}

template <typename Map>
auto oldest(const Map& map) {
  return std::min_element(map.begin(), map.end(), [](const auto& a, const auto& b) {
    return a.second.used < b.second.used;
  });
}

void copy(void* to, const void* from, uint64_t bytes, void* stream) {
  const CudaApi& api = CudaApi::get();
  if (bytes > 0) api.check(api.copy(to, from, bytes, kDeviceToDevice, stream), "cudaMemcpyAsync");
}

}  // namespace

bool Form::is_gone() const {
  return std::any_of(objects.begin(), objects.end(), [](const auto& one) { return one.expired(); });
}

CallGraph::CallGraph(Function function, Function set_instrument)
    : function_(std::move(function)), set_instrument_(std::move(set_instrument)) {}

void CallGraph::clear() {
  forms_.clear();
  pool_.clear();
}

void CallGraph::run_plainly(PackedArgs arguments, Any* result, const std::string& why) {
  declined = why;
  ++others;
  function_.CallPacked(arguments, result);
}

void CallGraph::run(PackedArgs arguments, Any* result) {
  if (Watching::is_on()) return function_.CallPacked(arguments, result);
  Form* form = form_of(arguments);
  if (form == nullptr) return run_plainly(arguments, result, "an argument cannot be compared");
  if (!form->is_learned) {
    declined = hindrance(arguments, current_device());
    ++others;
    form->lesson = learn(function_, set_instrument_, arguments, result);
    form->is_learned = true;
    if (!declined.empty()) form->lesson.declined = declined;
    declined = form->lesson.declined;
    if (!declined.empty()) {
      form->lesson.calls.clear();
      return;
    }
    note_addresses(*form, arguments);
    bool is_new = false;
    graph_of(*form, probe(*form, arguments).key(), &is_new);
    return;
  }
  if (!form->lesson.declined.empty()) return run_plainly(arguments, result, form->lesson.declined);
  note_addresses(*form, arguments);
  // A cache writes its index arrays without waiting for what reads them.
  if (read_.has_value()) read_->wait();
  const Record record = probe(*form, arguments);
  if (!record.is_complete()) {
    return run_plainly(arguments, result, "an argument of a kernel cannot be compared");
  }
  bool is_new = false;
  Graph* graph = graph_of(*form, record.key(), &is_new);
  // The first call loads kernels; and what comes but once is not worth a graph.
  if (is_new) return run_plainly(arguments, result, "");
  if (graph->executable == nullptr && graph->declined.empty()) {
    capture(*form, record, arguments, graph);
  }
  if (!graph->declined.empty()) return run_plainly(arguments, result, graph->declined);
  replay(*form, record, arguments, graph, result);
}

Form* CallGraph::form_of(PackedArgs arguments) {
  Words key{static_cast<uint64_t>(current_device())};
  for (int i = 0; i < arguments.size(); ++i) {
    if (!append_argument(key, raw(arguments)[i], false)) return nullptr;
  }
  auto entry = forms_.find(key);
  if (entry != forms_.end()) {
    entry->second.used = ++clock_;
    return &entry->second;
  }
  for (auto it = forms_.begin(); it != forms_.end();) {
    it = it->second.is_gone() ? forms_.erase(it) : std::next(it);
  }
  if (forms_.size() >= kMostForms) forms_.erase(oldest(forms_));
  Form& form = forms_[std::move(key)];
  form.used = ++clock_;
  add_objects(form, arguments);
  return &form;
}

void CallGraph::add_objects(Form& form, PackedArgs arguments) {
  form.addresses.resize(static_cast<size_t>(arguments.size()));
  form.copies.resize(static_cast<size_t>(arguments.size()));
  for (int i = 0; i < arguments.size(); ++i) {
    visit(raw(arguments)[i], [&](const TVMFFIAny& one) {
      if (one.type_index < kTVMFFIStaticObjectBegin || one.type_index == kTVMFFITensor ||
          one.type_index == kTVMFFIShape) {
        return;
      }
      auto object = AnyView::CopyFromTVMFFIAny(one).cast<ObjectRef>();
      form.objects.emplace_back(
          tvm::ffi::details::ObjectUnsafe::ObjectPtrFromObjectRef<Object>(object));
    });
  }
}

void CallGraph::note_addresses(Form& form, PackedArgs arguments) {
  for (size_t i = 0; i < form.addresses.size(); ++i) {
    const DLTensor* tensor = tensor_of(raw(arguments)[i]);
    if (tensor == nullptr || form.copies[i].has_value()) continue;
    const void* address = address_of(*tensor);
    if (form.addresses[i] != nullptr && form.addresses[i] != address) {
      form.copies[i] = tensor_like(*tensor);
      for (auto& [key, graph] : form.graphs) graph = Graph();  // they read the one that came before
    }
    form.addresses[i] = address;
  }
}

Record CallGraph::probe(const Form& form, PackedArgs arguments) const {
  Record record;
  {
    Watching watching(&record);
    for (const CacheCall& call : form.lesson.calls) {
      std::vector<Any> values;
      values.reserve(call.arguments.size());
      for (const Value& one : call.arguments) values.push_back(one.with(arguments));
      std::vector<AnyView> views(values.begin(), values.end());
      Any result;
      call.function.CallPacked(PackedArgs(views.data(), static_cast<int>(views.size())), &result);
      record.add_result(result);
    }
  }
  record.finish();
  return record;
}

Graph* CallGraph::graph_of(Form& form, const Words& key, bool* is_new) {
  auto [entry, is_added] = form.graphs.try_emplace(key);
  *is_new = is_added;
  entry->second.used = ++clock_;
  if (form.graphs.size() > kMostGraphs) form.graphs.erase(oldest(form.graphs));
  return &entry->second;
}

void CallGraph::capture(Form& form, const Record& record, PackedArgs arguments, Graph* graph) {
  std::vector<AnyView> given(arguments.data(), arguments.data() + arguments.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (form.copies[i].has_value()) given[i] = *form.copies[i];
  }
  const PackedArgs packed(given.data(), arguments.size());
  if (record.bytes() > 0) graph->copies = DeviceMemory(record.bytes() + kBehind);
  Capturing capturing(record, graph->copies.data(), pool_);
  try {
    Capture captured(current_device());
    Any result;
    {
      Watching watching(&capturing);
      function_.CallPacked(packed, &result);
    }
    graph->executable = captured.finish();
    capturing.finish(form.lesson.allocations);
    graph->memory = capturing.memory();
    graph->result = Value(result, identities(packed));
    ++captures;
  } catch (const Error& error) {
    graph->executable = nullptr;
    graph->declined = "it cannot be captured: " + std::string(error.message());
  }
}

void CallGraph::replay(Form& form, const Record& record, PackedArgs arguments, Graph* graph,
                       Any* result) {
  const CudaApi& api = CudaApi::get();
  void* stream = TVMFFIEnvGetStream(kCuda, current_device());
  for (const Record::Chunk& chunk : record.chunks()) {
    copy(graph->copies.data() + chunk.to, chunk.from, chunk.bytes, stream);
  }
  if (!read_.has_value()) read_.emplace();
  if (!form.lesson.keeps_results) read_->record(stream);
  for (size_t i = 0; i < form.copies.size(); ++i) {
    if (!form.copies[i].has_value()) continue;
    const DLTensor* tensor = tensor_of(raw(arguments)[i]);
    copy(form.copies[i]->GetDLTensorPtr()->data, address_of(*tensor), bytes_of(*tensor), stream);
  }
  api.check(api.launch(graph->executable.get(), stream), "cudaGraphLaunch");
  if (form.lesson.keeps_results) read_->record(stream);
  ++replays;
  declined.clear();
  *result = graph->result.with(arguments);
}

}  // namespace warploom::graph
