# Training loss and its distance from O0's. Blocks of the data, one per cell: step, loss, running mean,
# running mean of |loss - O0's|.
array palette[8] = [black, '#999999', blue, green, vermillion, purple, orange, sky]
rounding(i) = color_of[i] == 1 && dash_of[i] == 2
color(i) = rounding(i) ? '#d3d3d3' : palette[color_of[i] < 8 ? color_of[i] + 1 : 8]
thickness(i) = color_of[i] == 0 ? 4 : rounding(i) ? 7 : color_of[i] == 1 ? 3 : 1.6
dash(i) = rounding(i) ? 1 : dash_of[i]
set multiplot
set lmargin at screen px(70)
set rmargin at screen px(width - 24)
set xrange [0:steps]
set label 1 'Training loss: '.subject.page_note at screen px(24), screen py(22) noenhanced font title_font \
    textcolor rgb ink
set label 2 (window > 1 ? sprintf('every step (thin) and the mean of %d steps', window) : 'every step') \
    at screen px(24), screen py(44) font small_font textcolor rgb soft
set tmargin at screen py(104)
set bmargin at screen py(430)
set format x ''
set yrange [0:top_loss]
set key at screen px(70), screen py(58) left top horizontal Left reverse maxrows 2 noenhanced \
    font small_font textcolor rgb ink samplen 2.5 spacing 1.2
plot for [i = 1:series] data index i-1 using 1:2 with lines linecolor rgb color(i) linewidth 0.4 notitle, \
     for [i = 1:series] data index i-1 using (rounding(i) ? $1 : NaN):3 with lines \
     linecolor rgb color(i) linewidth thickness(i) notitle, \
     for [i = 1:series] data index i-1 using (rounding(i) ? NaN : $1):3 with lines \
     linecolor rgb color(i) linewidth thickness(i) dashtype dash(i) title label_of[i]
unset label 1; unset label 2
set key off
set tmargin at screen py(478)
set bmargin at screen py(height - 52)
set format x '%g'
set label 9 'step' at graph 0.5, screen py(height - 16) center font small_font textcolor rgb soft
set label 3 (window > 1 ? sprintf('Distance to O0: |loss - loss of O0|, mean of %d steps. ', window) \
    : 'Distance to O0: |loss - loss of O0|. ') \
    .(ulp_shown ? 'Grey is chance: O0 again, weights moved by one ulp'.(rounding_shown ? \
    '; light: by as much as rounding to half.' : '.') : '') \
    at screen px(70), screen py(462) font small_font textcolor rgb soft
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
        center font small_font textcolor rgb soft
    plot -1
}
unset multiplot
