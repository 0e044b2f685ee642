# Training loss and its distance from O0's. Blocks of the data, one per cell: step, loss, running mean,
# running mean of |loss - O0's|. Then one per cell that ends in losses that are not finite: where a cross is.
rounding(i) = color_of[i] == 1 && dash_of[i] == 2
color(i) = rounding(i) ? 0xd3d3d3 : level(color_of[i])
thickness(i) = color_of[i] == 0 ? 4 : rounding(i) ? 7 : color_of[i] == 1 ? 3 : 1.6
dash(i) = rounding(i) ? 1 : dash_of[i]
lower = 122 + 18 * key_rows # pixels above the lower panel, but for the upper one
set multiplot
set lmargin at screen px(70)
set rmargin at screen px(width - 24)
set xrange [0:steps]
set label 1 'Training loss: '.subject.page_note at screen px(24), screen py(22) noenhanced font title_font \
    textcolor rgb ink
set label 2 (window > 1 ? sprintf('every step (thin) and the mean of %d steps', window) : 'every step') \
    .(crosses > 0 ? '; cross: from here on no loss is finite' : '') \
    at screen px(24), screen py(44) noenhanced font small_font textcolor rgb soft
set tmargin at screen py(68 + 18 * key_rows)
set bmargin at screen py(lower + 272)
set format x ''
set yrange [0:top_loss]
set key at screen px(70), screen py(58) left top horizontal Left reverse maxrows key_rows noenhanced \
    font small_font textcolor rgb ink samplen 2.5 spacing 1.2 width 1
plot for [i = 1:series] data index i-1 using 1:2 with lines linecolor rgb color(i) linewidth 0.4 notitle, \
     for [i = 1:series] data index i-1 using (rounding(i) ? $1 : NaN):3 with lines \
     linecolor rgb color(i) linewidth thickness(i) notitle, \
     for [i = 1:series] data index i-1 using (rounding(i) ? NaN : $1):3 with lines \
     linecolor rgb color(i) linewidth thickness(i) dashtype dash(i) notitle, \
     for [i = 1:crosses] data index series+i-1 using 1:2:(level($3)) with points pointtype 2 \
     pointsize 1.6 linewidth 2.4 linecolor rgb variable notitle, \
     for [i = 1:series] NaN with linespoints linecolor rgb color(i) linewidth thickness(i) \
     dashtype dash(i) pointtype (ends[i] ? 2 : 0) pointsize (ends[i] ? 1.2 : 0) title label_of[i]
unset label 1; unset label 2
set key off
set tmargin at screen py(lower + 320)
set bmargin at screen py(height - 52)
set format x '%g'
set label 9 'step' at graph 0.5, screen py(height - 16) center noenhanced font small_font textcolor rgb soft
set label 3 (window > 1 ? sprintf('Distance to O0: |loss - loss of O0|, mean of %d steps. ', window) \
    : 'Distance to O0: |loss - loss of O0|. ') \
    .(ulp_shown ? 'Grey is chance: O0 again, weights moved by one ulp'.(rounding_shown ? \
    '; light: by as much as rounding to half.' : '.') : '') \
    at screen px(70), screen py(lower + 304) noenhanced font small_font textcolor rgb soft
set autoscale y
if (different > 0) {
    set logscale y
    set format y '10^{%T}'
    plot for [i = 2:series] data index i-1 using (rounding(i) ? $1 : NaN):4 with lines \
        linecolor rgb color(i) linewidth thickness(i), \
         for [i = 2:series] data index i-1 using (rounding(i) ? NaN : $1):4 with lines \
        linecolor rgb color(i) linewidth (color_of[i] == 1 ? thickness(i) : 1.8) dashtype dash(i)
} else {
    set yrange [0:1]
    unset ytics
    set label 4 'no cell here has losses that differ from those of an O0 cell' at graph 0.5, graph 0.5 \
        center noenhanced font small_font textcolor rgb soft
    plot -1
}
unset multiplot
