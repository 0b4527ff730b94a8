// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages of rings and regions as grants. A page whose grant the backend still has mapped keeps a reference until that is
 * over, so freeing is safe whatever the backend does.
 */
#include <linux/kconfig.h>

#if IS_ENABLED(CONFIG_XEN_XENBUS_FRONTEND)

#include <linux/mm.h>
#include <linux/slab.h>
#include <xen/grant_table.h>
#include <xen/page.h>

#include "grants.h"
#include "vgpu_xen.h"

struct vgpu_shared {
	unsigned long count;
	grant_ref_t refs[];
};

/* A request's list: the grants of the pages behind it, the first is the one that the backend is told. */
struct list_grants {
	u32 pages;
	struct vgpu_shared *lists;
};

static struct vgpu_shared *grant(u16 domain, struct page **pages, unsigned long count, bool read_only)
{
	struct vgpu_shared *shared = kvmalloc(struct_size(shared, refs, count), GFP_KERNEL_ACCOUNT);
	grant_ref_t head;
	unsigned long i;

	if (!shared)
		return ERR_PTR(-ENOMEM);
	if (gnttab_alloc_grant_references(count, &head)) {
		kvfree(shared);
		return ERR_PTR(-ENOSPC);
	}
	shared->count = count;
	for (i = 0; i < count; i++) {
		shared->refs[i] = gnttab_claim_grant_reference(&head);
		gnttab_page_grant_foreign_access_ref_one(shared->refs[i], domain, pages[i], read_only);
		if (i % 1024 == 0)
			cond_resched();
	}
	return shared;
}

/* Any context, but for large ones. */
void vgpu_grants_unshare(struct vgpu_shared *shared)
{
	unsigned long i;

	for (i = 0; i < shared->count; i++)
		gnttab_end_foreign_access(shared->refs[i], NULL);
	kvfree(shared);
}

void vgpu_grants_release(struct vgpu_request *request)
{
	struct list_grants *grants = request->carried;

	if (!grants)
		return;
	if (grants->lists)
		vgpu_grants_unshare(grants->lists);
	kfree(grants);
}

void vgpu_grants_of(const struct vgpu_request *request, u32 *list, u32 *pages)
{
	const struct list_grants *grants = request->carried;

	*list = grants ? grants->lists->refs[0] : 0;
	*pages = grants ? grants->pages : 0;
}

static void fill(struct page *list, const grant_ref_t *refs, unsigned long count)
{
	__le32 *out = page_address(list);
	unsigned long i;

	for (i = 0; i < count; i++)
		out[i] = cpu_to_le32(refs[i]);
}

/* Writes the grants of `shared` into pages behind the request, and grants those. */
static int add_lists(struct vgpu_device *device, struct vgpu_request *request, struct vgpu_shared *shared)
{
	const unsigned long lists = DIV_ROUND_UP(shared->count, VGPU_XEN_REFS_PER_PAGE);
	const unsigned long first = lists > 1;
	struct list_grants *grants;
	unsigned long i;
	int error = vgpu_request_add_pages(request, lists + first);

	if (error)
		return error;
	for (i = 0; i < lists; i++) {
		const unsigned long at = i * VGPU_XEN_REFS_PER_PAGE;

		fill(request->pages[first + i], shared->refs + at,
		     min_t(unsigned long, VGPU_XEN_REFS_PER_PAGE, shared->count - at));
	}
	grants = kzalloc(sizeof(*grants), GFP_KERNEL);
	if (!grants)
		return -ENOMEM;
	grants->lists = grant(device->backend_domain, request->pages, lists + first, true);
	if (IS_ERR(grants->lists)) {
		error = PTR_ERR(grants->lists);
		kfree(grants);
		return error;
	}
	if (first)
		fill(request->pages[0], grants->lists->refs + 1, lists);
	grants->pages = shared->count;
	request->bus = device->bus;
	request->carried = grants;
	return 0;
}

int vgpu_grants_share(struct vgpu_device *device, struct vgpu_request *request, struct page **pages,
		      unsigned long count, bool read_only, struct vgpu_shared **shared)
{
	struct vgpu_shared *granted;
	int error;

	if (count > VGPU_XEN_PAGES_MAX)
		return -E2BIG;
	granted = grant(device->backend_domain, pages, count, read_only);
	if (IS_ERR(granted))
		return PTR_ERR(granted);
	error = add_lists(device, request, granted);
	if (error) {
		vgpu_grants_unshare(granted);
		return error;
	}
	request->body.add.bytes = cpu_to_le64((u64)count << PAGE_SHIFT);
	*shared = granted;
	return 0;
}

#endif
