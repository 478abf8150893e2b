// A device that only counts: its memory is the host's, its arithmetic the CPU's. Whatever makes the
// host wait for a real accelerator (reading a number, copying to the CPU, shapes that depend on
// numbers) is counted by name; everything else is one launch.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

std::mutex lock;
std::map<std::string, int64_t> waits;
int64_t launches = 0, bytes = 0;
thread_local bool inside = false;

const std::set<std::string> kWaits = {
    "aten::_local_scalar_dense", "aten::nonzero", "aten::nonzero_static", "aten::equal",
    "aten::is_nonzero", "aten::unique_dim", "aten::_unique2", "aten::masked_select",
    "aten::unique_consecutive", "aten::bincount", "aten::repeat_interleave"};

void wait(const std::string& name) {
  std::lock_guard<std::mutex> guard(lock);
  waits[name] += 1;
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    void* data = c10::alloc_cpu(n);
    if (!inside) {
      std::lock_guard<std::mutex> guard(lock);
      bytes += static_cast<int64_t>(n);
    }
    return {data, data, &c10::free_cpu, c10::Device(c10::DeviceType::PrivateUse1, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
};
Allocator allocator;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys,
                                           c10::dtype_or_default(dtype));
}

// the same memory, seen as a tensor of the CPU
at::Tensor host(const at::Tensor& x) {
  if (x.device().is_cpu()) return x;
  auto storage = c10::Storage(c10::Storage::use_byte_size_t(), x.storage().nbytes(),
                              c10::DataPtr(const_cast<void*>(x.storage().data()), c10::kCPU));
  auto out = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), x.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  return out;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  if (!inside) {
    if (to.device().is_cpu() && !self.device().is_cpu()) {
      wait("copy to the CPU");
    } else {
      std::lock_guard<std::mutex> guard(lock);
      launches += 1;
    }
  }
  host(to).copy_(host(self));
  return to;
}

void fit(const at::Tensor& x, c10::IntArrayRef size) {
  if (x.sizes() == size) return;
  const size_t needed = c10::multiply_integers(size) * x.element_size();
  if (x.storage().nbytes() < needed) {
    x.storage().set_data_ptr_noswap(allocator.allocate(needed));
    x.storage().set_nbytes(needed);
  }
  x.unsafeGetTensorImpl()->set_sizes_contiguous(size);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  fit(to, self.sizes());
  host(to).copy_(host(self));
  return to;
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size,
                         std::optional<at::MemoryFormat>) {
  fit(self, C10_AS_INTARRAYREF_SLOW(size));
  return self;
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto name = op.schema().operator_name().name;
  if (!inside) {
    if (kWaits.count(name)) {
      wait(name);
    } else {
      std::lock_guard<std::mutex> guard(lock);
      launches += 1;
    }
  }
  const bool before = inside;
  inside = true;
  try {
    at::native::cpu_fallback(op, stack);
  } catch (...) {
    inside = before;
    throw;
  }
  inside = before;
}

// one device with one stream, on which everything is done at once
struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Device only() { return c10::Device(c10::DeviceType::PrivateUse1, 0); }
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, only()); }
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return only(); }
  c10::Device getDevice() const override { return only(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const override { return stream(); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { wait("synchronizeStream"); }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override { *event = const_cast<Guard*>(this); }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { wait("synchronizeEvent"); }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
};
Hooks hooks;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

int64_t counted(const std::string& what) {
  std::lock_guard<std::mutex> guard(lock);
  if (what == "launches") return launches;
  if (what == "bytes") return bytes;
  int64_t total = 0;
  for (const auto& each : waits) total += each.second;
  return total;
}

std::string named() {
  std::lock_guard<std::mutex> guard(lock);
  std::string out;
  for (const auto& each : waits) out += each.first + " x " + std::to_string(each.second) + "; ";
  return out;
}

void reset() {
  std::lock_guard<std::mutex> guard(lock);
  waits.clear();
  launches = bytes = 0;
}

}  // namespace

TORCH_LIBRARY(toy, m) {
  m.def("counted(str what) -> int", &counted);
  m.def("waits() -> str", &named);
  m.def("reset() -> ()", &reset);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &resize);
  m.impl("as_strided", [](const at::Tensor& x, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                          std::optional<c10::SymInt> offset) {
    return at::native::as_strided_tensorimpl(
        x, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
        offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
  });
  m.impl("unfold", [](const at::Tensor& x, int64_t dim, int64_t size, int64_t step) {
    return at::native::unfold(x, dim, size, step);
  });
  m.impl("_reshape_alias", [](const at::Tensor& x, c10::SymIntArrayRef size,
                              c10::SymIntArrayRef stride) {
    return at::native::_reshape_alias(x, C10_AS_INTARRAYREF_SLOW(size),
                                      C10_AS_INTARRAYREF_SLOW(stride));
  });
  m.impl("view", [](const at::Tensor& x, c10::SymIntArrayRef size) {
    return at::native::view(x, C10_AS_INTARRAYREF_SLOW(size));
  });
}

// autocast casts nothing here
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
