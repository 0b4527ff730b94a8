// SPDX-License-Identifier: GPL-2.0-only
/* Page lists for the host: physically contiguous pages become one segment. */
#include <linux/mm.h>
#include <linux/slab.h>

#include "vgpu.h"

#define SEGMENTS_PER_PAGE (PAGE_SIZE / sizeof(struct vgpu_segment))

static unsigned long run_length(struct page **pages, unsigned long count)
{
	unsigned long n = 1;

	while (n < count && page_to_pfn(pages[n]) == page_to_pfn(pages[0]) + n)
		n++;
	return n;
}

int vgpu_request_add_pages(struct vgpu_request *request, unsigned long count)
{
	request->pages = kcalloc(count, sizeof(*request->pages), GFP_KERNEL);
	if (!request->pages)
		return -ENOMEM;
	while (request->page_count < count) {
		struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);

		if (!page)
			return -ENOMEM; /* the request frees what it has */
		request->pages[request->page_count++] = page;
	}
	return 0;
}

int vgpu_segments_add(struct vgpu_request *request, struct page **pages, unsigned long count)
{
	unsigned long at, n, segments = 0;
	int error;

	for (at = 0; at < count; at += run_length(pages + at, count - at))
		segments++;
	if (segments > VGPU_SEGMENTS_MAX)
		return -E2BIG;
	error = vgpu_request_add_pages(request, DIV_ROUND_UP(segments, SEGMENTS_PER_PAGE));
	if (error)
		return error;

	segments = 0;
	for (at = 0; at < count; at += n) {
		struct vgpu_segment *list = page_address(request->pages[segments / SEGMENTS_PER_PAGE]);
		struct vgpu_segment *segment = &list[segments % SEGMENTS_PER_PAGE];

		n = run_length(pages + at, count - at);
		segment->address = cpu_to_le64(page_to_phys(pages[at]));
		segment->bytes = cpu_to_le64((u64)n << PAGE_SHIFT);
		segments++;
		cond_resched();
	}
	request->tail_bytes = segments * sizeof(struct vgpu_segment);
	request->body.add.segments = cpu_to_le32(segments);
	request->body.add.bytes = cpu_to_le64((u64)count << PAGE_SHIFT);
	return 0;
}
