package tlsproxy

import (
	"golang.org/x/net/http2"
)

// keepSettings returns the settings that a side may see. It learns of no larger frames and no
// other table of headers than the default, which a relay depends on. The client also learns of
// the limits of the relay: by the first SETTINGS in any case, later only instead of higher ones.
func keepSettings(to side, f *http2.SettingsFrame, first bool) []http2.Setting {
	var kept []http2.Setting
	keep := func(id http2.SettingID, limit uint32) {
		val, ok := f.Value(id)
		switch {
		case limit == 0 && ok:
			kept = append(kept, http2.Setting{ID: id, Val: val})
		case limit > 0 && ok:
			kept = append(kept, http2.Setting{ID: id, Val: min(val, limit)})
		case limit > 0 && first:
			kept = append(kept, http2.Setting{ID: id, Val: limit})
		}
	}
	keep(http2.SettingInitialWindowSize, 0)
	if to == driverSide {
		keep(http2.SettingHeaderTableSize, 0) // of headers that are forwarded as they are
		keep(http2.SettingEnablePush, 0)
		keep(http2.SettingMaxHeaderListSize, 0)
		return kept
	}
	keep(http2.SettingMaxConcurrentStreams, maxStreams)
	keep(http2.SettingMaxHeaderListSize, maxHeaders)
	return kept
}
