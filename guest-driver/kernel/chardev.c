// SPDX-License-Identifier: GPL-2.0-only
/* /dev/vgpuN: what libcuda.so.1 asks of the kernel. */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "vgpu.h"

static int vgpu_open(struct inode *inode, struct file *file)
{
	struct miscdevice *misc = file->private_data;
	struct vgpu_device *device = container_of(misc, struct vgpu_device, misc);
	struct vgpu_process *process = vgpu_process_open(device);

	if (IS_ERR(process))
		return PTR_ERR(process);
	file->private_data = process;
	return nonseekable_open(inode, file);
}

static int vgpu_release(struct inode *inode, struct file *file)
{
	struct vgpu_process *process = file->private_data;

	vgpu_process_close(process);
	return 0;
}

/* A forked child, or whoever was sent the descriptor, is another process and must open its own. */
static bool is_owner(struct vgpu_process *process)
{
	return current->mm == process->mm;
}

static int do_hello(struct vgpu_process *process, void __user *user)
{
	struct vgpu_ioc_hello hello;
	int error;

	if (copy_from_user(&hello, user, sizeof(hello)))
		return -EFAULT;
	memset(&hello.host_schema, 0, sizeof(hello.host_schema));
	hello.window_base = 0;
	error = vgpu_process_hello(process, &hello);
	if (copy_to_user(user, &hello, sizeof(hello)))
		return -EFAULT;
	return error;
}

static int do_add_ring(struct vgpu_process *process, void __user *user)
{
	struct vgpu_ioc_ring ring = { 0 };
	int error = vgpu_ring_add(process, &ring);

	if (!error && copy_to_user(user, &ring, sizeof(ring)))
		return -EFAULT;
	return error;
}

static int do_drop_ring(struct vgpu_process *process, void __user *user)
{
	struct vgpu_ioc_ring ring;

	if (copy_from_user(&ring, user, sizeof(ring)))
		return -EFAULT;
	return vgpu_ring_drop(process, ring.id);
}

static int do_pin(struct vgpu_process *process, void __user *user)
{
	struct vgpu_ioc_region region;
	int error;

	if (copy_from_user(&region, user, sizeof(region)))
		return -EFAULT;
	error = vgpu_region_pin(process, &region, NULL);
	if (!error && copy_to_user(user, &region, sizeof(region)))
		return -EFAULT;
	return error;
}

static int do_pin_watched(struct vgpu_process *process, void __user *user)
{
	struct vgpu_ioc_watched watched;
	int error;

	if (copy_from_user(&watched, user, sizeof(watched)))
		return -EFAULT;
	error = vgpu_region_pin(process, &watched.region, &watched.slot);
	if (!error && copy_to_user(user, &watched, sizeof(watched)))
		return -EFAULT;
	return error;
}

static int do_unpin(struct vgpu_process *process, void __user *user)
{
	struct vgpu_ioc_region region;

	if (copy_from_user(&region, user, sizeof(region)))
		return -EFAULT;
	return vgpu_region_unpin(process, region.id, 0);
}

static int do_wait(struct vgpu_process *process, void __user *user)
{
	struct vgpu_ioc_wait wait;
	int error;

	if (copy_from_user(&wait, user, sizeof(wait)))
		return -EFAULT;
	error = vgpu_process_wait(process, &wait);
	if (copy_to_user(user, &wait, sizeof(wait)))
		return -EFAULT;
	return error;
}

static int do_ping(struct vgpu_process *process)
{
	struct vgpu_device *device = process->device;
	const u32 returns = READ_ONCE(process->returns);
	int error;

	if (vgpu_process_away(process))
		return 0;
	if (!vgpu_device_usable(device) || READ_ONCE(process->lost))
		return -EPIPE;
	error = vgpu_ping(device, 0, VGPU_PING_TIMEOUT);
	/* The device may have gone under the request, and the process stays. */
	if (error == -EPIPE && (vgpu_process_away(process) || READ_ONCE(process->returns) != returns))
		return 0;
	return error;
}

static int do_query(struct vgpu_process *process, void __user *user)
{
	struct vgpu_ioc_query query;
	int error;

	if (copy_from_user(&query, user, sizeof(query)))
		return -EFAULT;
	memset(query.answer, 0, sizeof(query.answer));
	error = vgpu_query(process->device, &query);
	if (!error && copy_to_user(user, &query, sizeof(query)))
		return -EFAULT;
	return error;
}

/* What changes rings and pages. -ENOTTY: it is something else. */
static long do_change(struct vgpu_process *process, unsigned int command, void __user *user)
{
	switch (command) {
	case VGPU_IOC_ADD_RING:
		return do_add_ring(process, user);
	case VGPU_IOC_DROP_RING:
		return do_drop_ring(process, user);
	case VGPU_IOC_PIN:
		return do_pin(process, user);
	case VGPU_IOC_PIN_WATCHED:
		return do_pin_watched(process, user);
	case VGPU_IOC_UNPIN:
		return do_unpin(process, user);
	default:
		return -ENOTTY;
	}
}

static long vgpu_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct vgpu_process *process = file->private_data;
	void __user *user = (void __user *)argument;
	u32 returns;
	long result;

	if (!is_owner(process))
		return -EBADF;
	switch (command) {
	case VGPU_IOC_HELLO:
		return do_hello(process, user);
	case VGPU_IOC_KICK:
		return vgpu_process_kick(process);
	case VGPU_IOC_WAIT:
		return do_wait(process, user);
	case VGPU_IOC_PING:
		return do_ping(process);
	case VGPU_IOC_QUERY:
		return do_query(process, user);
	default:
		break;
	}
	do {
		result = vgpu_process_lock_here(process);
		if (result)
			return result;
		returns = READ_ONCE(process->returns);
		result = do_change(process, command, user);
		vgpu_process_unlock_here(process);
	} while (result == -EPIPE && vgpu_process_await_return(process, returns));
	return result;
}

static int vgpu_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct vgpu_process *process = file->private_data;

	if (!is_owner(process))
		return -EBADF;
	if (vma->vm_pgoff == VGPU_WATCH_OFFSET >> PAGE_SHIFT)
		return vgpu_watch_map(process, vma);
	return vgpu_ring_map(process, vma);
}

const struct file_operations vgpu_file_operations = {
	.owner = THIS_MODULE,
	.open = vgpu_open,
	.release = vgpu_release,
	.unlocked_ioctl = vgpu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = vgpu_mmap,
};
