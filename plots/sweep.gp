# A sweep of fixed loss scales, one line per level and half format. Blocks of the data, one per line: log2 of
# the scale, |loss gap| with its lowest and highest seed, whether below O0, whether a seed has no gap, flushed
# in percent, overflowed values, skipped in percent.
array shape[8] = [7, 5, 9, 11, 13, 7, 5, 9]
color(i) = level(color_of[i])
size(i) = 1.1 - 0.08 * i
# where a mark of a missing gap stands, so that lines do not hide each other
mark(i) = gap_high / (gap_high / gap_low) ** (0.05 * i)
set multiplot
set lmargin at screen px(78)
set rmargin at screen px(width - 24)
set xrange [first - 0.5:last + 0.5]
step = last - first > 60 ? 8 : last - first > 30 ? 4 : last - first > 14 ? 2 : 1
set xtics step
set format x ''
set label 1 'Sweep of the loss scale: '.subject.page_note at screen px(24), screen py(22) noenhanced \
    font title_font textcolor rgb ink
set key at screen px(70), screen py(36) left top horizontal Left reverse maxrows key_rows noenhanced \
    font small_font textcolor rgb ink samplen 2.5 spacing 1.2 width 1
shift = 18 * (key_rows - 2)
set tmargin at screen py(shift + 108)
set bmargin at screen py(shift + 370)
set label 2 'Loss gap |final loss - that of O0|; hollow: below O0; cross: a loss is not finite' \
    .(chance > 0 ? '; grey: chance' : '') at screen px(78), screen py(shift + 94) noenhanced font small_font \
    textcolor rgb soft
set logscale y
set yrange [gap_low:gap_high]
set format y '10^{%T}'
if (chance > gap_low) { set object 1 rectangle from graph 0, first gap_low to graph 1, first chance behind \
    fillcolor rgb '#ececec' fillstyle solid noborder }
if (!any_gap) { set label 3 'no cell has a loss gap: its losses or those of O0 are not finite' \
    at graph 0.5, graph 0.5 center noenhanced font small_font textcolor rgb soft }
plot for [i = 1:lines] data index i-1 using 1:2 with lines linecolor rgb color(i) linewidth 1.6 \
         dashtype dash_of[i] notitle, \
     for [i = 1:lines] data index i-1 using 1:2:3:4 with yerrorbars linecolor rgb color(i) pointtype 0 \
         notitle, \
     for [i = 1:lines] data index i-1 using 1:($5 > 0 ? NaN : $2) with points linecolor rgb color(i) \
         pointtype shape[i] pointsize size(i) notitle, \
     for [i = 1:lines] data index i-1 using 1:($5 > 0 ? $2 : NaN) with points linecolor rgb color(i) \
         pointtype shape[i] - 1 pointsize size(i) notitle, \
     for [i = 1:lines] data index i-1 using 1:($6 > 0 ? mark(i) : NaN) with points linecolor rgb color(i) \
         pointtype 2 pointsize 0.9 linewidth 1.6 notitle, \
     for [i = 1:lines] NaN with linespoints linecolor rgb color(i) linewidth 1.6 dashtype dash_of[i] \
         pointtype shape[i] pointsize size(i) title label_of[i]
unset label 1; unset object 1; unset label 3
set key off
array top[3] = [shift + 408, shift + 568, shift + 728]
array column_of[3] = [7, 8, 9]
array heading[3] = ['Flushed to zero, % of the non-zero gradient values that are cast; 0 is not drawn', \
    'Overflowed gradient values in the probed steps; 0 is not drawn', 'Skipped steps, %']
array high[3] = [flushed_high, overflowed_high, skipped_high]
array nothing[3] = ['nothing was flushed, or nothing was counted', \
    'nothing overflowed, or nothing was counted', 'no step was skipped']
do for [k = 1:3] {
    set tmargin at screen py(top[k])
    set bmargin at screen py(top[k] + 118)
    set label 2 heading[k] at screen px(78), screen py(top[k] - 14) noenhanced font small_font \
        textcolor rgb soft
    if (k == 3) {
        set format x '2^{%.0f}'
        set label 9 'loss scale' at graph 0.5, screen py(height - 16) center noenhanced font small_font \
            textcolor rgb soft
    }
    if (high[k] > 0) {
        unset label 3
        set ytics autofreq
        if (k == 3) {
            unset logscale y
            set yrange [0:high[k] * 1.15]
            set format y '%g'
        } else {
            set logscale y
            set yrange [*:high[k] * 3]
            set format y (high[k] < 1000 ? '%g' : '10^{%T}')
        }
        plot for [i = 1:lines] data index i-1 using 1:column_of[k] with linespoints linecolor rgb color(i) \
            linewidth 1.6 dashtype dash_of[i] pointtype shape[i] pointsize size(i)
    } else {
        unset logscale y
        set yrange [0:1]
        unset ytics
        set label 3 nothing[k] at graph 0.5, graph 0.5 center noenhanced font small_font textcolor rgb soft
        plot -1
    }
}
unset multiplot
