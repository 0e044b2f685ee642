# Rates of layers beside the machine's limits. Blocks of the data: 0: copying (bytes, GB/s); 1: products
# (GFLOP/s); 2i and 2i+1, of cell i: products (flop per byte, GFLOP/s, share of the step) and the rest (bytes,
# GB/s, share).
array palette[8] = [black, '#999999', blue, green, vermillion, purple, orange, sky]
color(i) = palette[color_of[i] < 8 ? color_of[i] + 1 : 8]
size(share) = 0.5 + 3.2 * sqrt(share)
stats data index 1 using 1 nooutput
peak = STATS_max
left_edge = intensity_low / 3; right_edge = intensity_high * 3
bottom = flops_low / 2.5
rate_top = (rate_high > copy_cache ? rate_high : copy_cache) * 2
rate_span = rate_top / (rate_low / 2)
roof(x, slope) = (x * slope < peak) ? x * slope : NaN
# where the line of a slope comes into the picture, and whether it has room for a label there
enters(slope) = 1.15 * (left_edge * slope > bottom ? left_edge : bottom / slope)
is_shown(slope) = 1.3 * enters(slope) * slope < peak
# labels that would cover an earlier one of their panel move below it; in pixels
pixels(span) = (height - 156) / log10(span)
array down[labels + 1]
do for [k = 1:labels] {
    per_decade = pixels(panel_of[k] == 1 ? 2 * peak / bottom : rate_span)
    down[k] = 0
    do for [j = 1:k - 1] {
        gap = per_decade * log10(y_of[j] / y_of[k]) - down[j] + down[k]
        if (panel_of[j] == panel_of[k] && abs(gap) < 13) { down[k] = down[k] + 13 - gap }
    }
}
set multiplot
set logscale xy
set label 1 'Roofline: '.subject.page_note at screen px(24), screen py(22) noenhanced font title_font \
    textcolor rgb ink
set tmargin at screen py(104)
set bmargin at screen py(height - 52)
set key at screen px(70), screen py(38) left top horizontal Left reverse maxrows 2 noenhanced \
    font small_font textcolor rgb ink samplen 1.2 spacing 1.2
# left: products
set lmargin at screen px(70)
set rmargin at screen px(0.5 * width - 16)
set xrange [left_edge:right_edge]
set yrange [bottom:peak * 2]
set format x '%g'
set format y '%g'
set label 2 'matrix products: GFLOP/s against flop per byte' at graph 0, screen py(94) font small_font \
    textcolor rgb soft
do for [k = 1:labels] { if (panel_of[k] == 1) { set label 100+k name_of[k] at first x_of[k], first y_of[k] \
    offset char 1.4, screen -down[k] / height noenhanced font tiny_font textcolor rgb soft } }
if (is_shown(copy_memory)) {
    set label 200 'copying in memory' at first enters(copy_memory), first enters(copy_memory) * copy_memory \
        offset 1.4,0 font tiny_font textcolor rgb soft
}
if (is_shown(copy_cache)) {
    set label 201 'in cache' at first enters(copy_cache), first enters(copy_cache) * copy_cache \
        offset 1.4,0 font tiny_font textcolor rgb soft
}
set samples 400
plot roof(x, copy_memory) with lines linecolor rgb '#888888' linewidth 1.6 notitle, \
     (is_shown(copy_cache) ? roof(x, copy_cache) : NaN) with lines linecolor rgb '#888888' linewidth 1.6 \
     dashtype 2 notitle, \
     for [k = 1:roofs] data index 1 every ::(k-1)::(k-1) using (left_edge):1:(right_edge - left_edge):(0) \
     with vectors nohead linecolor rgb '#888888' linewidth 1.6 notitle, \
     data index 1 using (right_edge / 1.1 / 2**$0):1:(roof_name[int($0)+1]) with labels right offset 0,0.6 \
     noenhanced font tiny_font textcolor rgb soft notitle, \
     for [i = 1:cells] data index 2*i using 1:2:(size($3)) with points pointtype 7 pointsize variable \
     linecolor rgb color(i) notitle, \
     for [i = 1:cells] NaN with points pointtype 7 pointsize 1.2 linecolor rgb color(i) title label_of[i]
# right: everything else
unset label
set key off
set lmargin at screen px(0.5 * width + 54)
set rmargin at screen px(width - 24)
set xrange [bytes_low / 2:bytes_high * 4]
set yrange [rate_low / 2:rate_top]
set label 2 'everything else: GB/s against bytes; the line: copying as many' \
    at graph 0, screen py(94) font small_font textcolor rgb soft
do for [k = 1:labels] { if (panel_of[k] == 2) { set label 100+k name_of[k] at first x_of[k], first y_of[k] \
    offset char 1.4, screen -down[k] / height noenhanced font tiny_font textcolor rgb soft } }
set format x '%.0s%cB'
plot data index 0 using 1:2 with lines linecolor rgb '#888888' linewidth 1.6, \
     for [i = 1:cells] data index 2*i+1 using 1:2:(size($3)) with points pointtype 7 pointsize variable \
     linecolor rgb color(i)
unset multiplot
