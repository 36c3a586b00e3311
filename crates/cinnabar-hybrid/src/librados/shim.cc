// What librados has for C++ only: copying an object from another one, and lists by cursors that
// are texts.
//
// Nothing is thrown to the caller: an exception ends the process, as a panic does.

#include <rados/librados.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

extern "C" {

// Begins to make `to_name` a copy of `from_name`, if that has `version` and keeps it. The callback is called
// once if 0 is returned, else never.
int cinnabar_rados_copy(rados_ioctx_t to, const char *to_name, rados_ioctx_t from, const char *from_name,
                        uint64_t version, int flags, void *argument, rados_callback_t callback) noexcept {
  librados::IoCtx to_io, from_io;
  librados::IoCtx::from_rados_ioctx_t(to, to_io);
  librados::IoCtx::from_rados_ioctx_t(from, from_io);
  librados::ObjectWriteOperation op;
  op.copy_from(from_name, from_io, version,
               LIBRADOS_OP_FLAG_FADVISE_SEQUENTIAL | LIBRADOS_OP_FLAG_FADVISE_NOCACHE);
  librados::AioCompletion *completion = librados::Rados::aio_create_completion(argument, callback);
  const int result = to_io.aio_operate(to_name, completion, &op, flags);
  completion->release();
  return result;
}

// Lists up to `count` objects of the pool from the cursor `after` on (empty: from the beginning). Each name goes to
// `sink`. `next` gets the cursor behind them, empty at the pool's end. Gives 0 or a negative error number; -EINVAL:
// `after` is no cursor, -ERANGE: `next` has no room for one.
int cinnabar_rados_list(rados_ioctx_t pool, const char *after, size_t count, void *argument,
                        void (*sink)(void *argument, const char *name, size_t length), char *next,
                        size_t next_length) noexcept {
  librados::IoCtx io;
  librados::IoCtx::from_rados_ioctx_t(pool, io);
  librados::ObjectCursor begin = io.object_list_begin(), behind;
  if (*after != 0 && !begin.from_str(after)) {
    return -EINVAL;
  }
  std::vector<librados::ObjectItem> found;
  const int result = io.object_list(begin, io.object_list_end(), count, {}, &found, &behind);
  if (result < 0) {
    return result;
  }
  for (const auto &item : found) {
    sink(argument, item.oid.data(), item.oid.size());
  }
  const std::string text = io.object_list_is_end(behind) ? std::string() : behind.to_str();
  if (text.size() >= next_length) {
    return -ERANGE;
  }
  std::memcpy(next, text.c_str(), text.size() + 1);
  return 0;
}

}  // extern "C"
