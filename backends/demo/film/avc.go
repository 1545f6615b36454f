package film

// Header bytes of NAL units: nal_ref_idc 3 and nal_unit_type (table 7-1).
const (
	headSlice = 0x61
	headIDR   = 0x65
	headSPS   = 0x67
	headPPS   = 0x68
)

// Values of the syntax (sections 7.4.2 and 7.4.5).
const (
	profileBaseline   = 66
	constrained       = 0xC0 // constraint_set0_flag and constraint_set1_flag
	log2MaxFrameNum   = 8
	orderByDecoding   = 2 // pic_order_cnt_type
	sliceP            = 5 // all slices of the picture are P
	sliceI            = 7 // all slices of the picture are I
	pcmInI            = 25
	pcmInP            = 30
	deblockingIsOff   = 1
	macroblock        = 16 // its edge in pixels
	macroblockSamples = 384
)

// levels are the levels of the standard, times ten, each with its maximum size in
// macroblocks (table A-1, MaxFS).
var levels = []struct {
	level   uint32
	maxSize int
}{{31, 3600}, {40, 8192}, {50, 22080}, {51, 36864}}

// level returns the lowest level for a picture of this size, times ten.
func level(macroblocks int) uint32 {
	for _, l := range levels {
		if macroblocks <= l.maxSize {
			return l.level
		}
	}
	return 52
}

// picture is a picture in Y'CbCr 4:2:0, in macroblocks.
type picture struct {
	wide, high int    // in macroblocks
	y, cb, cr  []byte // rows of 16, 8 and 8 samples for each macroblock
}

func newPicture(width, height int) *picture {
	p := &picture{wide: (width + macroblock - 1) / macroblock, high: (height + macroblock - 1) / macroblock}
	n := p.wide * p.high
	samples := make([]byte, n*macroblockSamples)
	p.y, p.cb, p.cr = samples[:n*256], samples[n*256:n*320], samples[n*320:]
	return p
}

// sps returns the sequence parameter set (section 7.3.2.1.1) of a film whose
// pictures show width × height pixels of p, both even.
func sps(p *picture, width, height int) []byte {
	var b bitstream
	b.u(8, profileBaseline)
	b.u(8, constrained)
	b.u(8, level(p.wide*p.high))
	b.ue(0) // seq_parameter_set_id
	b.ue(log2MaxFrameNum - 4)
	b.ue(orderByDecoding)
	b.ue(1)   // max_num_ref_frames
	b.u(1, 0) // gaps_in_frame_num_value_allowed_flag
	b.ue(uint32(p.wide - 1))
	b.ue(uint32(p.high - 1))
	b.u(1, 1) // frame_mbs_only_flag
	b.u(1, 1) // direct_8x8_inference_flag
	right, bottom := p.wide*macroblock-width, p.high*macroblock-height
	if right == 0 && bottom == 0 {
		b.u(1, 0) // frame_cropping_flag
	} else {
		b.u(1, 1)
		b.ue(0)
		b.ue(uint32(right / 2)) // in units of two pixels
		b.ue(0)
		b.ue(uint32(bottom / 2))
	}
	b.u(1, 0) // vui_parameters_present_flag
	b.end()
	return b.unit(headSPS)
}

// pps returns the picture parameter set (section 7.3.2.2).
func pps() []byte {
	var b bitstream
	b.ue(0)   // pic_parameter_set_id
	b.ue(0)   // seq_parameter_set_id
	b.u(1, 0) // entropy_coding_mode_flag: CAVLC
	b.u(1, 0) // bottom_field_pic_order_in_frame_present_flag
	b.ue(0)   // num_slice_groups_minus1
	b.ue(0)   // num_ref_idx_l0_default_active_minus1
	b.ue(0)   // num_ref_idx_l1_default_active_minus1
	b.u(1, 0) // weighted_pred_flag
	b.u(2, 0) // weighted_bipred_idc
	b.ue(0)   // pic_init_qp_minus26, signed, which is the same for 0
	b.ue(0)   // pic_init_qs_minus26
	b.ue(0)   // chroma_qp_index_offset
	b.u(1, 1) // deblocking_filter_control_present_flag
	b.u(1, 0) // constrained_intra_pred_flag
	b.u(1, 0) // redundant_pic_cnt_present_flag
	b.end()
	return b.unit(headPPS)
}

// header writes the header of a picture's only slice (section 7.3.3).
func (b *bitstream) header(number int) {
	b.ue(0) // first_mb_in_slice
	if number == 0 {
		b.ue(sliceI)
	} else {
		b.ue(sliceP)
	}
	b.ue(0) // pic_parameter_set_id
	b.u(log2MaxFrameNum, uint32(number)%(1<<log2MaxFrameNum))
	if number == 0 {
		b.ue(0)   // idr_pic_id
		b.u(1, 0) // no_output_of_prior_pics_flag
		b.u(1, 0) // long_term_reference_flag
	} else {
		b.u(1, 0) // num_ref_idx_active_override_flag
		b.u(1, 0) // ref_pic_list_modification_flag_l0
		b.u(1, 0) // adaptive_ref_pic_marking_mode_flag
	}
	b.ue(0) // slice_qp_delta
	b.ue(deblockingIsOff)
}

// pcm writes macroblock n with raw samples (section 7.3.5).
func (b *bitstream) pcm(p *picture, kind uint32, n int) {
	b.ue(kind)
	b.align()
	b.raw(p.y[n*256:][:256])
	b.raw(p.cb[n*64:][:64])
	b.raw(p.cr[n*64:][:64])
}

// firstPicture returns the first picture of a film: an IDR picture.
func firstPicture(p *picture) []byte {
	var b bitstream
	b.bytes = make([]byte, 0, p.wide*p.high*(macroblockSamples+2)+64)
	b.header(0)
	for n := range p.wide * p.high {
		b.pcm(p, pcmInI, n)
	}
	b.end()
	return b.unit(headIDR)
}

// laterPicture returns the picture with this number, which is greater than 0. It
// contains the macroblocks of list, in ascending order, and skips all others,
// which stay unchanged. No macroblock has a motion vector, so that of a skipped
// one is predicted as zero (section 8.4.1.1).
func laterPicture(p *picture, number int, list []int) []byte {
	var b bitstream
	b.header(number)
	next := 0
	for _, n := range list {
		b.ue(uint32(n - next)) // mb_skip_run
		b.pcm(p, pcmInP, n)
		next = n + 1
	}
	if skipped := p.wide*p.high - next; skipped > 0 {
		b.ue(uint32(skipped))
	}
	b.end()
	return b.unit(headSlice)
}
