# Throughput and memory, one row per cell. Columns: row, samples/s, lowest, highest, upper ends of the stacked
# memory categories.
array shade[9] = [blue, purple, vermillion, orange, green, sky, yellow, '#999999', '#444444']
lower(k) = k == 1 ? 0 : column(3 + k)
set multiplot
set tmargin at screen py(74)
set bmargin at screen py(height - 102)
set yrange [rows + 0.6:0.4]
set style fill solid 1 noborder
unset ytics
set border 1
set grid xtics noytics
set key off
set label 1 'Speed and memory: '.subject.page_note at screen px(24), screen py(22) noenhanced \
    font title_font textcolor rgb ink
set label 4 build_note[3:*] at screen px(24), screen py(40) noenhanced font small_font \
    textcolor rgb vermillion
# left: throughput; leaves space for the numbers right of the longest range
set lmargin at screen px(left)
set rmargin at screen px(left + 0.46 * (width - left))
set xrange [0:top_rate * 1.42]
set label 2 'samples/s (relative to O0); line: range of the rounds' at graph 0, screen py(58) \
    noenhanced font small_font textcolor rgb soft
do for [i = 1:rows] {
    set label 100+i cell[i] at graph 0, first i right offset -1,0 noenhanced font small_font textcolor rgb ink
    set label 200+i rate_text[i] at graph 1, first i right noenhanced font small_font textcolor rgb ink
}
plot for [i = 1:rows] data using ($1 == i ? $2/2 : NaN):1:($2/2):(0.32) with boxxyerror \
     fillcolor rgb level(color_of[i]) fillstyle transparent solid 0.45 noborder, \
     data using 2:1:3:4 with xerrorbars linecolor rgb ink pointtype 0 linewidth 1.6
# right: memory
unset label
set lmargin at screen px(left + 0.51 * (width - left))
set rmargin at screen px(width - 24)
set xrange [0:top_memory * 1.38]
set label 3 'tensor memory by category, MiB (relative to O0)' at graph 0, screen py(58) noenhanced \
    font small_font textcolor rgb soft
do for [i = 1:rows] { set label 200+i memory_text[i] at graph 1, first i right noenhanced font small_font \
    textcolor rgb ink }
do for [k = 1:categories] {
    x = left + 0.51 * (width - left) + 6 + (0.49 * (width - left) - 24) / 3 * ((k - 1) % 3)
    y = height - 58 + 18 * ((k - 1) / 3)
    set object k rectangle center screen px(x), screen py(y) size screen px(10), screen 1 - py(10) \
        fillcolor rgb shade[k > 9 ? 9 : k] fillstyle solid noborder
    set label 300+k category[k] at screen px(x + 10), screen py(y) noenhanced font tiny_font textcolor rgb ink
}
plot for [k = 1:categories] data using (0.5*(lower(k)+column(4+k))):1:(0.5*(column(4+k)-lower(k))):(0.32) \
    with boxxyerror fillcolor rgb shade[k > 9 ? 9 : k]
unset multiplot
