# Loss scale over the steps, one panel per cell. Blocks 2i-2 and 2i-1 of the data: step and log2(scale); the
# skipped steps.
first_top = 86.0
panel_height = (height - first_top - 16.0) / panels
octaves = high - low
set multiplot
set key off
set lmargin at screen px(64)
set rmargin at screen px(width - 24)
set xrange [-0.008 * steps:steps]
set yrange [low:high]
set format y '2^{%g}'
set ytics low, (octaves > 20 ? 8 : octaves > 10 ? 4 : octaves > 4 ? 2 : 1)
set label 1 'Loss scale and skipped steps: '.subject.page_note at screen px(24), screen py(22) noenhanced \
    font title_font textcolor rgb ink
set label 2 'a cross is a step that was skipped because a gradient overflowed' \
    at screen px(24), screen py(44) noenhanced font small_font textcolor rgb soft
do for [i = 1:panels] {
    top = first_top + (i - 1) * panel_height
    set tmargin at screen py(top)
    set bmargin at screen py(top + panel_height - 36)
    set format x (i == panels ? '%g' : '')
    set label 9 (i == panels ? 'step' : '') at graph 0.5, screen py(height - 16) center noenhanced \
        font small_font textcolor rgb soft
    set object 90 rectangle center screen px(69), screen py(top - 12) size screen px(9), screen 1 - py(9) \
        fillcolor rgb level(color_of[i]) fillstyle solid noborder
    set label 10 title[i] at screen px(80), screen py(top - 12) noenhanced font panel_font textcolor rgb ink
    set label 11 note[i] at graph 1, screen py(top - 12) right noenhanced font small_font textcolor rgb soft
    plot data index 2*i-2 using 1:2 with lines linecolor rgb level(color_of[i]) linewidth 2.2, \
         data index 2*i-1 using 1:2 with points pointtype 2 pointsize 1.1 linewidth 1.8 linecolor rgb ink
    unset label 1; unset label 2
}
unset multiplot
